//go:build kcat

// Needs kcat (Debian's package of that name) in PATH: go test -tags kcat ./ingest

package ingest

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// kcat runs the tool and returns what it prints.
func kcat(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(testContext(t), "kcat", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kcat %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestKcat(t *testing.T) {
	s := startServer(t, newFakeCluster(3), nil)
	list := kcat(t, "", "-b", s.addr, "-L")
	if !strings.Contains(list, "1 brokers") {
		t.Errorf("listing:\n%s", list)
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			topic := "kcat-" + codec
			create(t, s, topic, 3, nil)
			var in []string
			for i := range 300 {
				in = append(in, fmt.Sprintf("line %03d %s", i, strings.Repeat("z", 100)))
			}
			before := time.Now().Add(-time.Second).UnixMilli()
			for i, half := range [][]string{in[:150], in[150:]} {
				kcat(t, strings.Join(half, "\n"), "-b", s.addr, "-P", "-t", topic, "-z", codec, "-X", "enable.idempotence=true")
				if i == 0 {
					for _, r := range s.cluster.replicas {
						r.tier(t, s.cold)
					}
				}
			}
			for _, from := range []string{"beginning", fmt.Sprintf("s@%d", before)} {
				out := strings.Split(strings.TrimSpace(kcat(t, "", "-b", s.addr, "-C", "-t", topic, "-o", from, "-e", "-q")), "\n")
				slices.Sort(out)
				if !slices.Equal(out, in) {
					t.Errorf("from %s: expected %d lines, found %d", from, len(in), len(out))
				}
			}
			query := kcat(t, "", "-b", s.addr, "-Q", "-t", topic+":0:-1")
			if !strings.Contains(query, topic+" [0] offset") {
				t.Errorf("query: %s", query)
			}
		})
	}
}
