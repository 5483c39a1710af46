package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestALineSaysEachThingOnce(t *testing.T) {
	type shardID uint32
	var out bytes.Buffer
	log := newLogger(&out, "info", "text").With("broker", int32(9)).With("broker", 9, "shard", shardID(3))
	log.Info("first", "broker", int64(9), "shard", uint32(3), "x", 1)
	log.Info("second", "broker", 8)
	log.WithGroup("g").Info("third", "broker", 9)
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"broker=9 shard=3 x=1", "broker=9 shard=3 broker=8", "broker=9 shard=3 g.broker=9"} {
		if !strings.HasSuffix(lines[i], want) || strings.Count(lines[i], "broker=9 ") != 1 {
			t.Errorf("expected %q, found %q", want, lines[i])
		}
	}
	if _, ok := log.Handler().(leveled); !ok {
		t.Error("the level of a logger with attributes can no longer be changed")
	}
}

func TestWhoIsWaitedForIsSaid(t *testing.T) {
	for want, missing := range map[string][]string{
		"elect a leader": nil,
		`majority of the etcd members" missing="etcd2=h:1, etcd3=h:2"`: {"etcd2=h:1", "etcd3=h:2"},
	} {
		var out bytes.Buffer
		sayWhoIsMissing(newLogger(&out, "info", "text"), missing)
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), `missing=""`) {
			t.Errorf("%v: expected %q, found %q", missing, want, out.String())
		}
	}
}
