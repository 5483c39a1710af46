package broker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"thermocline/metadata"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
)

const (
	// markWithin bounds what reading the marker adds to the start, and each later try.
	markWithin = 5 * time.Second
	// markAgain is the pause between tries while the store is away.
	markAgain = time.Second
	// sayMarkAgain bounds how often that is said.
	sayMarkAgain = time.Minute
	// inProcess begins the URL of a store that is each process's own (benches
	// without uploads): there is none that brokers could share.
	inProcess = "memory:"
)

// errOtherStore: the store is not the one that this cluster uses.
var errOtherStore = errors.New("store.url is not the store of this cluster")

// marker checks by format.MarkerKey that a store is the cluster's. Without it, a
// mistyped store.url would be found only when records that other brokers have
// trimmed cannot be read.
type marker struct {
	store   object.Store
	meta    metadata.Store
	cluster string
}

// check makes the marker where the cluster has none yet. An error that wraps
// errOtherStore was found twice: bytes that were damaged on their way must not
// end a broker.
func (m *marker) check(ctx context.Context) error {
	err := m.once(ctx)
	if errors.Is(err, errOtherStore) {
		err = m.once(ctx)
	}
	return err
}

func (m *marker) once(ctx context.Context) error {
	// The row before the object: a row that is there was written after its object.
	known, err := metadata.StoreMark(ctx, m.meta)
	if err != nil {
		return err
	}
	found, err := m.read(ctx)
	if errors.Is(err, object.ErrNotFound) && known == "" {
		found, err = m.create(ctx)
	}
	switch {
	case errors.Is(err, object.ErrNotFound):
		return m.lacks(known)
	case err != nil:
		return fmt.Errorf("store.url: %s: %w", m.store, err)
	case found.Cluster != m.cluster:
		return m.foreign(found)
	}
	if known == "" {
		// Also after a broker that ended between object and row.
		if known, err = metadata.EnsureStoreMark(ctx, m.meta, found.ID); err != nil {
			return err
		}
	}
	if found.ID != known {
		return m.second(found, known)
	}
	return nil
}

func (m *marker) read(ctx context.Context) (format.Marker, error) {
	b := make([]byte, format.MarkerBytesMax)
	n, err := m.store.GetRange(ctx, format.MarkerKey, 0, b)
	if err != nil {
		return format.Marker{}, err
	}
	return format.DecodeMarker(b[:n])
}

// create makes the marker, unless another broker is first, and returns the one
// that is there.
func (m *marker) create(ctx context.Context) (format.Marker, error) {
	body := format.Marker{Cluster: m.cluster, ID: rand.Text()}.Encode()
	err := m.store.Put(ctx, format.MarkerKey, bytes.NewReader(body), object.PutOptions{IfAbsent: true, CRC32C: object.CRC32C(body)})
	if err != nil && !errors.Is(err, object.ErrExists) {
		return format.Marker{}, err
	}
	return m.read(ctx)
}

func (m *marker) lacks(known string) error {
	return fmt.Errorf("the store at %s lacks this cluster's %s: is store.url the same as on the other brokers? Set it to theirs and start again. "+
		"If the objects were moved here, %s belongs to them: it is one line, %s: %w",
		m.store, format.MarkerKey, format.MarkerKey, bytes.TrimSpace(format.Marker{Cluster: m.cluster, ID: known}.Encode()), errOtherStore)
}

func (m *marker) foreign(found format.Marker) error {
	return fmt.Errorf("store.url %s belongs to cluster %s, this is cluster %s: set store.url to what the other brokers of this cluster have; "+
		"a new cluster takes a bucket, prefix or directory of its own: %w",
		m.store, found.Cluster, m.cluster, errOtherStore)
}

func (m *marker) second(found format.Marker, known string) error {
	return fmt.Errorf("the store at %s has a %s of this cluster with the id %s, but the cluster uses the store whose %s has the id %s: "+
		"is store.url the same as on the other brokers? Set it to theirs and start again: %w",
		m.store, format.MarkerKey, found.ID, format.MarkerKey, known, errOtherStore)
}

// checkStore checks the marker. A store that does not answer is no reason not to
// start: the check goes on beside the broker, which until then puts nothing into
// the store, and ends if it is another one.
func (b *Broker) checkStore(ctx context.Context, clusterID string) error {
	b.storeChecked = make(chan struct{})
	if strings.HasPrefix(b.cfg.StoreURL, inProcess) {
		close(b.storeChecked)
		return nil
	}
	m := &marker{store: b.uploads, meta: b.store, cluster: clusterID}
	within, cancel := context.WithTimeout(ctx, markWithin)
	defer cancel()
	err := m.check(within)
	switch {
	case err == nil:
		close(b.storeChecked)
		return nil
	case errors.Is(err, errOtherStore):
		return err
	case ctx.Err() != nil: // the start was given up
		return ctx.Err()
	case errors.Is(err, object.ErrUnavailable) || errors.Is(err, metadata.ErrUnavailable) || within.Err() != nil:
		b.log.Warn("it is not known yet whether this is the cluster's store: nothing is put into it until it answers", "store", b.uploads.String(), "error", err)
		b.work.Go(func() { b.checkStoreLater(m) })
		return nil
	}
	return err
}

// checkStoreLater checks until the store answers. What else is wrong with it is
// said, and tried again, as it is with uploads.
func (b *Broker) checkStoreLater(m *marker) {
	said := time.Now()
	for {
		pause(b.ctx, markAgain)
		within, cancel := context.WithTimeout(b.ctx, markWithin)
		err := m.check(within)
		cancel()
		switch {
		case err == nil:
			b.log.Info("the store answers, and is this cluster's", "store", b.uploads.String())
			close(b.storeChecked)
			return
		case b.ctx.Err() != nil:
			return
		case errors.Is(err, errOtherStore):
			b.fail(fmt.Errorf("broker %d: %w", b.id, err))
			return
		case time.Since(said) >= sayMarkAgain:
			said = time.Now()
			b.log.Warn("it is still not known whether this is the cluster's store, and nothing is put into it", "store", b.uploads.String(), "error", err)
		}
	}
}

// mayStore waits until the store is known to be the cluster's; false when ctx
// ends first.
func (b *Broker) mayStore(ctx context.Context) bool {
	select {
	case <-b.storeChecked:
		return true
	case <-ctx.Done():
		return false
	}
}
