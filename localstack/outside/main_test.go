//go:build outside

package outside_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"thermocline/localstack/faults"
	"thermocline/localstack/processes"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(processes.Main(m, &binary, "Debian: apt-get install strace kcat bash coreutils gawk",
		"strace", "kcat", "bash", "sha256sum", "awk"))
}

const patience = 3 * time.Minute

// cluster starts three brokers, with etcd as a process of its own, so that
// what is done to a broker's syncs is not done to etcd's.
func cluster(t *testing.T) (*processes.Cluster, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	dir := t.TempDir()
	c, err := processes.Start(ctx, processes.Options{Binary: binary, Dir: dir, OwnEtcd: true, Settings: map[string]string{
		"store.url": "file://" + filepath.Join(dir, "bucket"), "wal.max.bytes": "256MiB", "wal.file.bytes": "8MiB"}})
	if err != nil {
		showLogs(t, dir)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			showLogs(t, dir)
		}
	})
	must(t, faults.ReadyAll(ctx, c))
	return c, ctx
}

// showLogs prints the end of each process's log.
func showLogs(t *testing.T, dir string) {
	t.Helper()
	for _, end := range processes.LogEnds(dir) {
		t.Log(end)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
