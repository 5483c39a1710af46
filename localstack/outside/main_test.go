//go:build outside

package outside_test

import (
	"context"
	"os"
	"testing"
	"time"

	"thermocline/localstack/faults/clustertest"
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
	return clustertest.Start(t, patience, processes.Options{Binary: binary, OwnEtcd: true, Settings: map[string]string{"wal.max.bytes": "256MiB", "wal.file.bytes": "8MiB"}})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
