//go:build outside

package outside_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"thermocline/localstack/faults"
	"thermocline/localstack/processes"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var errs []error
	for _, tool := range []string{"strace", "kcat", "bash", "sha256sum", "awk"} {
		if _, err := exec.LookPath(tool); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: install it (Debian: apt-get install strace kcat bash coreutils gawk): %w", tool, err))
		}
	}
	dir, err := os.MkdirTemp("", "thermocline-outside")
	errs = append(errs, err)
	if errors.Join(errs...) == nil {
		defer os.RemoveAll(dir)
		binary, err = faults.Build(dir)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
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
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is right
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Log(err)
			continue
		}
		lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
		t.Logf("%s:\n%s", filepath.Base(path), bytes.Join(lines[max(0, len(lines)-25):], []byte("\n")))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
