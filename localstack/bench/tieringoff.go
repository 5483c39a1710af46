package bench

import "context"

// discarding is a store that every broker has for itself and that keeps only
// what opens a segment: sealing, committing and trimming go on, nothing is
// uploaded.
const discarding = "memory:bench?discard=true&keep=4MiB"

// tieringOff is full speed with 1 KiB records without an upload.
func (r *runner) tieringOff(ctx context.Context) error {
	if !r.wanted(rowOff) {
		return nil
	}
	t, err := r.settledCluster(ctx, "off", map[string]string{"store.url": discarding})
	if err != nil {
		return err
	}
	p, err := r.steady(ctx, t, "kib")
	if err == nil {
		r.put(Ours, rowOff, "MB/s", p.MBps(), true)
		r.put(Ours, rowOffCPU, "s/GB", p.CPUPerGB(), false)
	}
	return joinClose(err, t)
}
