package tiering

import (
	"testing"
	"time"
)

func TestPaceFollowsIngest(t *testing.T) {
	p := pace{factor: 1.5}
	now := time.Unix(1000, 0)
	var total int64
	const ingest = 40 << 20 // bytes/s
	for range 600 {
		now = now.Add(100 * time.Millisecond)
		total += ingest / 10
		p.observe(now, total, false)
	}
	if got := took(&p, now, 120<<20); got < 1900*time.Millisecond || got > 2100*time.Millisecond {
		t.Fatalf("120 MiB at 1.5 times 40 MiB/s took %v", got)
	}
	p.observe(now, total, true)
	if got := took(&p, now, 120<<20); got != 0 {
		t.Fatalf("an urgent upload was held back for %v", got)
	}
}

func TestPaceFloor(t *testing.T) {
	p := pace{factor: 1.5}
	if got := took(&p, time.Unix(1000, 0), 16<<20); got < 1700*time.Millisecond || got > 2*time.Second {
		t.Fatalf("16 MiB at the floor of 8 MiB/s took %v", got)
	}
}

func TestPaceOff(t *testing.T) {
	p := pace{factor: -1}
	if got := took(&p, time.Unix(1000, 0), 1<<30); got != 0 {
		t.Fatalf("held back for %v", got)
	}
}

// took sends n bytes in parts, as an adapter does, with a clock of its own.
func took(p *pace, start time.Time, n int) time.Duration {
	now := start
	const part = 256 << 10
	for ; n > 0; n -= part {
		now = now.Add(max(0, p.delay(now, part)))
	}
	return now.Sub(start)
}
