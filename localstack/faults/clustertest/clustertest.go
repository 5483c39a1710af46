// Package clustertest starts clusters of real processes for tests.
package clustertest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"thermocline/localstack/faults"
	"thermocline/localstack/processes"
)

// Start starts a cluster that ends with the test, and returns once every broker
// is ready. What o leaves open is a folder of the test's and a bucket in it,
// without a server between. The context ends after patience at the latest. A
// test that fails shows the end of each process's log.
func Start(t *testing.T, patience time.Duration, o processes.Options) (*processes.Cluster, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	settings := map[string]string{"store.url": "file://" + filepath.Join(o.Dir, "bucket")}
	for k, v := range o.Settings {
		settings[k] = v
	}
	o.Settings = settings
	c, err := processes.Start(ctx, o)
	if err != nil {
		showLogs(t, o.Dir)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			showLogs(t, o.Dir)
		}
	})
	if err := faults.ReadyAll(ctx, c); err != nil {
		t.Fatal(err)
	}
	return c, ctx
}

func showLogs(t *testing.T, dir string) {
	t.Helper()
	for _, end := range processes.LogEnds(dir) {
		t.Log(end)
	}
}
