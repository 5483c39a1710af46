package transport

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestHandshakeRoundTripAndFlips(t *testing.T) {
	h := hello{version: protocolVersion, lane: laneUrgent, from: 1 << 60, to: 7, cluster: "the cluster"}
	b := h.append(nil)
	if got, err := readHello(bytes.NewReader(b)); err != nil || got != h {
		t.Fatalf("%+v %v", got, err)
	}
	a := answer{version: 9, status: statusBusy, replica: 77}
	ab := a.append(nil)
	if got, err := readAnswer(bytes.NewReader(ab)); err != nil || got != a {
		t.Fatalf("%+v %v", got, err)
	}
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		if got, err := readHello(bytes.NewReader(b)); err == nil {
			t.Fatalf("bit %d flipped: %+v", bit, got)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	for bit := range 8 * len(ab) {
		ab[bit/8] ^= 1 << (bit % 8)
		if got, err := readAnswer(bytes.NewReader(ab)); err == nil {
			t.Fatalf("bit %d flipped: %+v", bit, got)
		}
		ab[bit/8] ^= 1 << (bit % 8)
	}
	for n := range len(b) {
		if _, err := readHello(bytes.NewReader(b[:n])); err != io.ErrUnexpectedEOF {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestAnswersSayWhatIsWrong(t *testing.T) {
	h := hello{version: 1, from: 1, to: 2, cluster: "c1"}
	for _, c := range []struct {
		a    answer
		says string
	}{
		{answer{version: 2, status: statusVersion, replica: 2}, "peer speaks version 2, this binary 1"},
		{answer{version: 1, status: statusCluster, replica: 2}, `another cluster than "c1"`},
		{answer{version: 1, status: statusReplica, replica: 5}, "expected replica 2 at this address, found 5"},
		{answer{version: 1, status: statusWelcome, replica: 5}, "expected replica 2 at this address, found 5"},
		{answer{version: 1, status: statusBusy, replica: 2}, "no more connections"},
		{answer{version: 1, status: statusMalformed, replica: 2}, "status 5"},
	} {
		if err := c.a.check(&h); !errors.Is(err, ErrHandshake) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.a, err)
		}
	}
	if err := (&answer{version: 1, replica: 2}).check(&h); err != nil {
		t.Error(err)
	}
}

func FuzzHandshake(f *testing.F) {
	h := hello{version: protocolVersion, lane: laneBulk, from: 1, to: 2, cluster: "c"}
	f.Add(h.append(nil))
	f.Add((&answer{version: 1, replica: 3}).append(nil))
	f.Add(appendResult(nil, "reason"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil && !bytes.HasPrefix(b, h.append(nil)) {
			t.Fatalf("%x read as %+v", b, h)
		}
		if a, err := readAnswer(bytes.NewReader(b)); err == nil && len(b) < answerLen {
			t.Fatalf("%x read as %+v", b, a)
		}
		if err := readResult(bytes.NewReader(b)); err == nil && !bytes.HasPrefix(b, appendResult(nil, "")) {
			t.Fatalf("%x read as success", b)
		}
	})
}

func chunked(t testing.TB, data []byte, step int) []byte {
	t.Helper()
	var out bytes.Buffer
	w := newChunkWriter(&out, func(int) error { return nil })
	for rest := data; len(rest) > 0; {
		n := min(step, len(rest))
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unchunk(b []byte) ([]byte, error) {
	return io.ReadAll(&chunkReader{r: bytes.NewReader(b), before: func() error { return nil }})
}

func TestChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{0, 1, chunkMax - 1, chunkMax, chunkMax + 1, 3*chunkMax + 17} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		for _, step := range []int{1 << 30, 1000, chunkMax} {
			got, err := unchunk(chunked(t, data, step))
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes by %d: %d bytes, %v", size, step, len(got), err)
			}
		}
	}
	// No cut, flip or exchange goes unnoticed, and nothing unchecked comes out.
	data := bytes.Repeat([]byte("0123456789abcdef"), 3*chunkMax/16)
	whole := chunked(t, data, 1<<30)
	for _, n := range []int{0, 3, 8, 100, chunkMax + 8, len(whole) - 8, len(whole) - 1} {
		if got, err := unchunk(whole[:n]); err != io.ErrUnexpectedEOF || !bytes.HasPrefix(data, got) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	for range 200 {
		bad := bytes.Clone(whole)
		bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		if got, err := unchunk(bad); err == nil || !bytes.HasPrefix(data, got) {
			t.Fatalf("a flipped bit went unnoticed: %v", err)
		}
	}
	c := chunkHeadLen + chunkMax
	swapped := append(append(bytes.Clone(whole[c:2*c]), whole[:c]...), whole[2*c:]...)
	if _, err := unchunk(swapped); !errors.Is(err, ErrFrame) {
		t.Fatalf("exchanged chunks: %v", err)
	}
	lost := append(bytes.Clone(whole[:c]), whole[2*c:]...)
	if _, err := unchunk(lost); !errors.Is(err, ErrFrame) {
		t.Fatalf("a lost chunk: %v", err)
	}
	if _, err := unchunk(append(bytes.Clone(whole[:c]), whole[3*c:]...)); !errors.Is(err, ErrFrame) {
		t.Fatalf("a stream ended early: %v", err)
	}
}

func FuzzChunks(f *testing.F) {
	f.Add(chunked(f, []byte("some state"), 4))
	f.Add(chunked(f, nil, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := unchunk(b); err == nil && len(got) > len(b) {
			t.Fatalf("%d bytes out of %d", len(got), len(b))
		}
	})
}

func TestPacer(t *testing.T) {
	p := pacer{perSecond: 1000}
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
		if got := p.reserve(1000, now); got != want {
			t.Fatalf("grant %d: expected a wait of %v, found %v", i, want, got)
		}
	}
	if got := p.reserve(500, now.Add(10*time.Second)); got != 0 {
		t.Fatalf("after idleness: %v", got)
	}
	if got := (&pacer{}).reserve(1<<40, now); got != 0 {
		t.Fatalf("without a rate: %v", got)
	}
}
