//go:build outside

package outside_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"thermocline/localstack/faults"
)

// kcat runs the tool and returns what it prints.
func kcat(t *testing.T, ctx context.Context, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, "kcat", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kcat %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestKcatRoundTrip: what kcat sends in each codec it gets back: half from the
// store and half from the tail, and then all from the store.
func TestKcatRoundTrip(t *testing.T) {
	c, ctx := cluster(t)
	brokers := strings.Join(c.Bootstrap(), ",")
	codecs := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	want := map[string][]string{}
	for _, codec := range codecs {
		must(t, faults.CreateTopic(ctx, c, "kcat-"+codec, 3, nil))
		for i := range 400 {
			want[codec] = append(want[codec], fmt.Sprintf("%s %03d %s", codec, i, strings.Repeat("thermocline ", 8)))
		}
	}
	send := func(codec string, lines []string) {
		kcat(t, ctx, strings.Join(lines, "\n"), "-b", brokers, "-P", "-t", "kcat-"+codec, "-z", codec, "-X", "enable.idempotence=true")
	}
	check := func(where string) {
		for _, codec := range codecs {
			out := kcat(t, ctx, "", "-b", brokers, "-C", "-q", "-t", "kcat-"+codec, "-o", "beginning", "-e")
			got := strings.Split(strings.TrimRight(out, "\n"), "\n")
			slices.Sort(got)
			if !slices.Equal(got, want[codec]) {
				t.Errorf("%s, %s: %d lines of %d came back, or others", codec, where, len(got), len(want[codec]))
			}
		}
	}
	roll := func() {
		for _, codec := range codecs {
			_, err := faults.CLI(ctx, binary, "topic", "roll", "kcat-"+codec, "--wait", "-b", brokers)
			must(t, err)
		}
	}
	for _, codec := range codecs {
		send(codec, want[codec][:200])
	}
	roll()
	for _, codec := range codecs {
		send(codec, want[codec][200:])
	}
	check("store and tail")
	roll()
	check("store")
}

// TestDemo runs the demonstration on real input.
func TestDemo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", filepath.Join("..", "demo", "demo.sh"), binary)
	// Interrupted, it ends what it has started.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	base, err := freePorts(50)
	must(t, err)
	cmd.Env = append(os.Environ(), fmt.Sprintf("DEMO_BASE_PORT=%d", base))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// freePorts finds n free ports in a row.
func freePorts(n int) (int, error) {
	for base := 21000; base < 32000; base += n {
		if rowIsFree(base, n) {
			return base, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row", n)
}

func rowIsFree(base, n int) bool {
	for p := base; p < base+n; p++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			return false
		}
		if err := l.Close(); err != nil {
			return false
		}
	}
	return true
}
