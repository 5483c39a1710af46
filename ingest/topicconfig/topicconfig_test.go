package topicconfig

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"thermocline/wal/batch"
)

func TestTable(t *testing.T) {
	if !slices.IsSortedFunc(table, func(a, b Def) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the table is not ordered by name")
	}
	for _, d := range table {
		if err := d.Check(d.Default); err != nil {
			t.Errorf("default of %s: %v", d.Name, err)
		}
		if d.Doc == "" || d.Type == 0 || d.Handling == 0 {
			t.Errorf("%s lacks documentation, type or handling", d.Name)
		}
		if (d.Handling == Honoured) != (d.Why == "") {
			t.Errorf("%s: only what is not honoured has a reason, and always", d.Name)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"cleanup.policy", "compact,delete", true},
		{"cleanup.policy", "compact, delete", true},
		{"cleanup.policy", "shred", false},
		{"compression.type", "zstd", true},
		{"compression.type", "brotli", false},
		{"max.message.bytes", "2000", true},
		{"max.message.bytes", "-1", false},
		{"max.message.bytes", "1x", false},
		{"max.message.bytes", "200000000", false}, // above the limit below
		{"min.insync.replicas", "2", true},
		{"min.insync.replicas", "3", false},
		{"min.insync.replicas", "0", false},
		{"retention.ms", "-1", true},
		{"retention.ms", "-2", false},
		{"min.cleanable.dirty.ratio", "0.3", true},
		{"min.cleanable.dirty.ratio", "NaN", false},
		{"unclean.leader.election.enable", "false", true},
		{"unclean.leader.election.enable", "true", false},
		{"preallocate", "yes", false},
		{"no.such.config", "1", false},
	} {
		err := Validate(map[string]string{c.name: c.value}, Limits{MaxMessageBytes: 100 << 20, MinInsyncMax: 2})
		if (err == nil) != c.ok {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s=%s: %v is not ErrInvalid", c.name, c.value, err)
		}
	}
}

func TestOf(t *testing.T) {
	e := Of(nil, 1000)
	if e.MaxMessageBytes != 1000 || e.LogAppendTime || e.TimestampAfterMax != 3600000 || e.TimestampBeforeMax != -1 || e.Codec != batch.CodecProducer {
		t.Errorf("defaults: %+v", e)
	}
	e = Of(map[string]string{
		"max.message.bytes": "77", "message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "5",
		"message.timestamp.after.max.ms": "9223372036854775807", "compression.type": "gzip", "compression.gzip.level": "3", "cleanup.policy": "delete,compact",
	}, 1000)
	want := Effective{MaxMessageBytes: 77, LogAppendTime: true, TimestampBeforeMax: 5, TimestampAfterMax: -1, Codec: batch.Gzip, Level: 3, Compacted: true, Deletes: true}
	if e != want {
		t.Errorf("expected %+v, found %+v", want, e)
	}
	if c := Of(map[string]string{"compression.type": "uncompressed"}, 1).Codec; c != batch.None {
		t.Errorf("uncompressed: found %v", c)
	}
}

func TestBoundsThatAreToldCanBeWritten(t *testing.T) {
	for name, want := range map[string]string{
		"retention.ms":      "write a whole number from -1 to 9223372036854775807",
		"max.message.bytes": "write a whole number from 0 to 2147483647",
	} {
		d, _ := Lookup(name)
		if err := d.Check("abc"); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: expected %q, found %v", name, want, err)
		}
		if err := d.Check(want[strings.LastIndexByte(want, ' ')+1:]); err != nil {
			t.Errorf("%s: the bound that is told is refused: %v", name, err)
		}
	}
}
