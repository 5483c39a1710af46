package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"thermocline/localstack/conform/clients/go/driver"
)

type producer struct{ args []string }

func (p producer) Close() error { return nil }

// Send runs kcat once per partition for plain records, as lines, and once per
// record for those that lines cannot say.
func (p producer) Send(ctx context.Context, records []driver.Record) error {
	lines := map[int32]*bytes.Buffer{}
	var topic string
	for _, r := range records {
		topic = r.Topic
		if !plain(r) {
			if err := p.one(ctx, r); err != nil {
				return err
			}
			continue
		}
		b := lines[r.Partition]
		if b == nil {
			b = &bytes.Buffer{}
			lines[r.Partition] = b
		}
		fmt.Fprintf(b, "%s\t%s\n", r.Key, r.Value)
	}
	var all sync.WaitGroup
	errs := make([]error, len(lines))
	i := 0
	for partition, b := range lines {
		at := i
		all.Go(func() { errs[at] = p.run(ctx, b, "-t", topic, "-p", strconv.Itoa(int(partition)), "-K", "\t", "-Z") })
		i++
	}
	all.Wait()
	return errors.Join(errs...)
}

// plain records are lines of key, tabulator, value; what is empty is a null.
func plain(r driver.Record) bool {
	return len(r.Value) < 1<<16 && len(r.Headers) == 0 && (r.Key == nil || len(r.Key) > 0) && (r.Value == nil || len(r.Value) > 0)
}

// one sends a record whose value is a whole file.
func (p producer) one(ctx context.Context, r driver.Record) error {
	f, err := os.CreateTemp("", "kcat-value")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(r.Value)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	args := []string{"-t", r.Topic, "-p", strconv.Itoa(int(r.Partition))}
	if r.Key != nil {
		args = append(args, "-k", string(r.Key))
	}
	for _, h := range r.Headers {
		args = append(args, "-H", h.Key+"="+string(h.Value))
	}
	return p.run(ctx, nil, append(args, f.Name())...)
}

func (p producer) run(ctx context.Context, in io.Reader, args ...string) error {
	cmd := exec.CommandContext(ctx, "kcat", append(append([]string{}, p.args...), args...)...)
	cmd.Stdin = in
	out, err := cmd.CombinedOutput()
	// kcat says "Delivery failed" and ends with status 0.
	if err == nil && bytes.Contains(out, []byte("ERROR")) {
		err = errors.New("kcat reports an error")
	}
	if err != nil {
		return fmt.Errorf("%w: %.400s", err, out)
	}
	return nil
}

// reader runs one kcat per assigned partition, or one member of a group.
type reader struct {
	bootstrap, topic string
	running          []*process
}

type process struct {
	partition int32
	cmd       *exec.Cmd
	lines     chan []byte // closed when kcat has ended
	stderr    bytes.Buffer
}

func (r *reader) start(partition int32, from int64) error {
	at := strconv.FormatInt(from, 10)
	switch from {
	case driver.Earliest:
		at = "beginning"
	case driver.Latest:
		at = "end"
	}
	return r.run(partition, "-C", "-t", r.topic, "-p", strconv.Itoa(int(partition)), "-o", at)
}

func (r *reader) run(partition int32, args ...string) error {
	p := &process{partition: partition, lines: make(chan []byte, 1<<16)}
	p.cmd = exec.Command("kcat", append([]string{"-b", r.bootstrap, "-J", "-u", "-q"}, args...)...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(p.lines)
		in := bufio.NewReaderSize(out, 4<<20)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			p.lines <- line
		}
	}()
	r.running = append(r.running, p)
	return nil
}

func (r *reader) Poll(ctx context.Context, wait time.Duration) ([]driver.Record, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var out []driver.Record
		for _, p := range r.running {
			got, err := p.take()
			out = append(out, got...)
			if err != nil {
				return out, err
			}
		}
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-timer.C:
			return nil, nil
		case <-tick.C:
		}
	}
}

// take decodes the lines that are there.
func (p *process) take() ([]driver.Record, error) {
	var out []driver.Record
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				err := p.cmd.Wait()
				return out, fmt.Errorf("kcat has ended: %w: %s", err, p.stderr.String())
			}
			r, err := decode(line)
			if err != nil {
				return out, err
			}
			out = append(out, r)
		default:
			return out, nil
		}
	}
}

func decode(line []byte) (driver.Record, error) {
	var j struct {
		Topic     string
		Partition int32
		Offset    int64
		TS        int64
		Headers   []*string
		Key       *string
		Payload   *string
	}
	if err := json.Unmarshal(line, &j); err != nil {
		return driver.Record{}, fmt.Errorf("kcat printed %.200q: %w", line, err)
	}
	r := driver.Record{Topic: j.Topic, Partition: j.Partition, Offset: j.Offset, Key: text(j.Key), Value: text(j.Payload), Timestamp: time.UnixMilli(j.TS)}
	for i := 0; i+1 < len(j.Headers); i += 2 {
		r.Headers = append(r.Headers, driver.Header{Key: *j.Headers[i], Value: text(j.Headers[i+1])})
	}
	return r, nil
}

func text(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

// Seek starts the partition's kcat again.
func (r *reader) Seek(_ context.Context, _ string, partition int32, to int64) error {
	for i, p := range r.running {
		if p.partition == partition {
			p.end()
			r.running = append(r.running[:i], r.running[i+1:]...)
			return r.start(partition, to)
		}
	}
	return fmt.Errorf("partition %d is not read", partition)
}

func (r *reader) Pause(string, int32) error {
	return driver.NotApplicable("kcat cannot pause a partition")
}
func (r *reader) Resume(string, int32) error {
	return driver.NotApplicable("kcat cannot pause a partition")
}

// Commit does nothing: kcat commits every 200 ms, and when it ends.
func (r *reader) Commit(context.Context) error { return nil }

func (r *reader) Close() error {
	for _, p := range r.running {
		p.end()
	}
	r.running = nil
	return nil
}

// end lets kcat leave its group and commit; a reader that waits for a broker
// is killed after a while.
func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	kill := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.lines { // until it ends
	}
	_ = p.cmd.Wait()
}
