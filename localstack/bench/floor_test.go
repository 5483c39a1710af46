package bench

import (
	"context"
	"net"
	"testing"
	"time"
)

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestFloorAcknowledgesEveryFrame runs the three nodes in this process: every
// frame sent must be acknowledged once, in order.
func TestFloorAcknowledgesEveryFrame(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	addrs := []string{freeAddr(t), freeAddr(t), freeAddr(t)}
	ended := make(chan error, len(addrs))
	for i, a := range addrs {
		var followers []string
		if i == 0 {
			followers = addrs[1:]
		}
		dir := t.TempDir()
		go func() { ended <- FloorNode(ctx, a, dir, followers) }()
	}
	for _, a := range addrs[1:] { // followers listen before the leader is asked
		waitListening(t, a)
	}
	waitListening(t, addrs[0])
	n, delays, err := floorClient(ctx, addrs[0], 64<<10, 4, 0, 200*time.Millisecond)
	if err != nil || n == 0 || int64(len(delays))*(64<<10) != n {
		t.Fatalf("sent %d bytes, %d frames acknowledged, err %v", n, len(delays), err)
	}
	cancel()
	for range addrs {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func waitListening(t *testing.T, addr string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen: %v", addr, err)
		}
	}
}

func TestDelaysAt(t *testing.T) {
	d := Delays{5, 1, 4, 2, 3}
	if d.At(0) != 1 || d.At(0.5) != 3 || d.At(0.99) != 5 {
		t.Fatalf("got %v %v %v", d.At(0), d.At(0.5), d.At(0.99))
	}
}
