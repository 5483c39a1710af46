package conform

import (
	"fmt"
	"slices"
	"strings"
)

// Pinned versions. Go modules are pinned in clients/go/go.mod, and the Go
// client under test by its own integration tests in this module's go.mod.
const (
	java4Version  = "4.3.1"
	java3Version  = "3.9.2"
	kafkajs       = "2.2.4"
	zstdWasm      = "0.0.27"
	lz4js         = "0.2.0"
	kafkajsSnappy = "1.1.0"
	confluent     = "2.16.1"
	kafkaPython   = "3.0.12"
	pyZstandard   = "0.25.0"
	pyLZ4         = "4.4.5"
	pySnappy      = "0.7.3"
	slf4jVersion  = "1.7.36"
	kgoTestsName  = "kgo-tests"
	kgoModule     = "github.com/twmb/franz-go"
)

// quiet scenarios leave the brokers alone: several clients run them at a time.
var quiet = []string{
	"codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "shapes", "idempotent",
	"seek-times", "pause-resume", "group-commit", "group-rebalance", "group-848",
	"admin-topics", "admin-configs", "admin-groups", "admin-offsets", "topic-deleted",
}

// faulty scenarios stop brokers: one client after the other.
var faulty = []string{"leader-moved", "broker-killed", "coordinator-killed"}

// Scenarios lists all scenarios in the order of the table.
func Scenarios() []string { return slices.Concat(quiet, faulty) }

// client is one client library: how to install its driver.
type client struct {
	name string
	// install makes the driver ready and returns how it is started.
	install func(installer) (command, error)
}

// command starts a driver.
type command struct {
	args []string
	env  []string
}

// clients in the order of the table.
var clients = []client{
	{"java4", installJava(java4Version)},
	{"java3", installJava(java3Version)},
	{"kcat", installGo("kcat")},
	{"confluent", installPython("confluent")},
	{"franz", installGo("franz")},
	{"sarama", installGo("sarama")},
	{"kafkago", installGo("kafkago")},
	{"kafkajs", installNode},
	{"kafkapython", installPython("kafkapython")},
}

// Names lists the clients, and the integration tests, that CLIENTS may name.
func Names() []string {
	var out []string
	for _, c := range clients {
		out = append(out, c.name)
	}
	return append(out, kgoTestsName)
}

// choose returns the clients that a list separated by commas names, all for an
// empty one, and whether the integration tests are among them.
func choose(list string) (chosen []client, kgoTests bool, err error) {
	if list == "" {
		return clients, true, nil
	}
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(clients, func(c client) bool { return c.name == name })
		switch {
		case i >= 0:
			chosen = append(chosen, clients[i])
		case name == kgoTestsName:
			kgoTests = true
		default:
			return nil, false, fmt.Errorf("CLIENTS names %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	return chosen, kgoTests, nil
}
