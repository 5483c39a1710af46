package faults_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"thermocline/localstack/faults"
	"thermocline/localstack/processes"
)

// TestMistypedStore: a broker that is restarted with another store.url refuses
// to start and says why, and starts with its own again.
func TestMistypedStore(t *testing.T) {
	t.Parallel()
	dir, own := t.TempDir(), map[string]string{}
	c, ctx := cluster(t, nil, func(o *processes.Options) { o.Brokers, o.Dir, o.Of = 1, dir, []map[string]string{own} })
	must(t, c.Brokers[0].Stop())
	own["store.url"] = "file://" + filepath.Join(dir, "bukket")
	must(t, c.RestartBroker(0))
	select {
	case <-c.Brokers[0].Done():
	case <-ctx.Done():
		t.Fatal("a broker with another store runs on")
	}
	log, err := os.ReadFile(c.Brokers[0].LogFile)
	must(t, err)
	const text = "bukket lacks this cluster's cluster.json: is store.url the same as on the other brokers?"
	if !strings.Contains(string(log), text) {
		t.Errorf("expected %q in the log, found:\n%s", text, log)
	}
	delete(own, "store.url")
	must(t, faults.Restart(ctx, c, 0))
}
