package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"thermocline/localstack/processes"
)

// print writes the table: a row a measure, a column a system, and how ours
// stands to the row's goal.
func (r *runner) print() {
	fmt.Fprintln(r.o.Out)
	w := tabwriter.NewWriter(r.o.Out, 2, 4, 2, ' ', 0)
	columns := []string{Floor, Ours}
	if r.o.Peer != "" {
		columns = append(columns, KafkaPlain, KafkaFsync)
	}
	fmt.Fprint(w, "measure\tunit")
	for _, c := range columns {
		fmt.Fprintf(w, "\t%s", c)
	}
	fmt.Fprintln(w, "\tratio\tmust\taim\treached")
	for _, name := range r.order {
		row := r.rows[name]
		fmt.Fprintf(w, "%s\t%s", row.Name, row.Unit)
		for _, c := range columns {
			if v, ok := row.Values[c]; ok {
				fmt.Fprintf(w, "\t%s", figure(v))
			} else {
				fmt.Fprint(w, "\t-")
			}
		}
		fmt.Fprintln(w, row.judgement())
	}
	w.Flush()
}

// judgement is the last four columns of a row.
func (row *Row) judgement() string {
	g, ok := goals[row.Name]
	if !ok {
		return "\t-\t-\t-\t-"
	}
	ratio, reached := "-", "-"
	if v, ok := row.judged(g); ok {
		reached = row.verdict(g, v)
		if g.of != itself {
			ratio = fmt.Sprintf("%.2f", v)
		}
	}
	sign := map[bool]string{true: ">= ", false: "<= "}[row.Higher]
	of := map[against]string{kafka: " x kafka", kafkaDefault: " x kafka", machine: " x machine"}[g.of]
	return fmt.Sprintf("\t%s\t%s%s%s\t%s%s%s\t%s", ratio, sign, bound(g.must), of, sign, bound(g.aim), of, reached)
}

// bound writes a goal's number.
func bound(v float64) string {
	if v >= 1e6 {
		return fmt.Sprintf("%gM", v/1e6)
	}
	return fmt.Sprintf("%g", v)
}

func figure(v float64) string {
	switch {
	case v >= 10000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// machine measures what no broker can beat here.
func (r *runner) machine(ctx context.Context) error {
	small, err := SyncDelays(r.o.Dir, 4<<10, 500)
	if err != nil {
		return err
	}
	r.put(Floor, "fdatasync of 4 KiB, p50", "ms", ms(small.At(0.5)), false)
	r.put(Floor, "fdatasync of 4 KiB, p99", "ms", ms(small.At(0.99)), false)
	large, err := SyncDelays(r.o.Dir, 1<<20, 100)
	if err != nil {
		return err
	}
	r.put(Floor, "fdatasync of 1 MiB, p50", "ms", ms(large.At(0.5)), false)
	loop, err := LoopbackRate(time.Second)
	if err != nil {
		return err
	}
	r.put(Floor, "loopback, one stream", "MB/s", loop/1e6, true)
	if r.wantedAny(rowProduce, rowOff, rowAck82) {
		return r.floor(ctx)
	}
	return nil
}

// floor runs the three bare nodes as processes of their own.
func (r *runner) floor(ctx context.Context) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	addrs := make([]string, 3)
	for i, p := range ports {
		addrs[i] = fmt.Sprintf("127.0.0.1:%d", p)
	}
	var nodes []*processes.Process
	defer func() {
		for _, n := range nodes {
			_ = n.Kill()
		}
	}()
	for i := 2; i >= 0; i-- {
		args := []string{"bare-node", "--listen", addrs[i], "--dir", filepath.Join(r.o.Dir, fmt.Sprint("bare", i))}
		if i == 0 {
			args = append(args, "--follower", addrs[1], "--follower", addrs[2])
		}
		if err := os.MkdirAll(filepath.Join(r.o.Dir, fmt.Sprint("bare", i)), 0o755); err != nil {
			return err
		}
		n, err := processes.Run(ctx, fmt.Sprint("bare", i), r.o.Binary, r.o.Dir, addrs[i], args...)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	return r.floorLoads(ctx, addrs[0], nodes)
}

func (r *runner) floorLoads(ctx context.Context, addr string, nodes []*processes.Process) error {
	var pids []int
	for _, n := range nodes {
		pids = append(pids, n.PID())
	}
	before, err := CPUSeconds(pids...)
	if err != nil {
		return err
	}
	start := time.Now()
	n, _, err := floorClient(ctx, addr, 1<<20, 8, 0, min(r.o.Duration, 10*time.Second))
	if err != nil {
		return err
	}
	took := time.Since(start)
	after, err := CPUSeconds(pids...)
	if err != nil {
		return err
	}
	r.put(Floor, rowProduce, "MB/s", float64(n)/1e6/took.Seconds(), true)
	r.put(Floor, rowProduceCPU, "s/GB", (after-before)/(float64(n)/1e9), false)
	_, delays, err := floorClient(ctx, addr, 64<<10, 8, 82e6, min(r.o.Duration, 10*time.Second))
	if err != nil {
		return err
	}
	r.put(Floor, rowAck82, "ms", ms(Delays(delays).At(0.99)), false)
	return nil
}
