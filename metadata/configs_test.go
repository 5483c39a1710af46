package metadata_test

import (
	"errors"
	"testing"

	"thermocline/metadata"
	"thermocline/metadata/memory"
)

func TestDynamicConfigs(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	defer s.Close()
	v := openView(ctx, t, s, nil)
	set := func(kind metadata.ConfigKind, name string, config map[string]string) {
		t.Helper()
		rev, err := metadata.AlterConfig(ctx, s, metadata.DynamicConfig{Kind: kind, Name: name, Config: config, Revision: v.Config(kind, name).Revision})
		if err != nil {
			t.Fatalf("%s %q: %v", kind, name, err)
		}
		if err := v.Wait(ctx, rev); err != nil {
			t.Fatal(err)
		}
	}
	if c := v.Config(metadata.BrokerConfig, ""); c.Revision != 0 || len(c.Config) != 0 {
		t.Errorf("nothing set: found %+v", c)
	}
	names := []string{"default", "a/b c%", "", "ü"}
	before := v.ConfigVersion()
	for _, name := range names {
		set(metadata.GroupConfig, name, map[string]string{"name": name})
	}
	set(metadata.BrokerConfig, "", map[string]string{"message.max.bytes": "1"})
	set(metadata.BrokerConfig, "1", map[string]string{"message.max.bytes": "2"})
	if now := v.ConfigVersion(); now <= before {
		t.Errorf("version: expected more than %d, found %d", before, now)
	}
	for _, name := range names {
		if got := v.Config(metadata.GroupConfig, name); got.Config["name"] != name || got.Name != name {
			t.Errorf("group %q: found %+v", name, got)
		}
	}
	if a, b := v.Config(metadata.BrokerConfig, ""), v.Config(metadata.BrokerConfig, "1"); a.Config["message.max.bytes"] != "1" || b.Config["message.max.bytes"] != "2" {
		t.Errorf("brokers: found %+v and %+v", a, b)
	}
	if n := len(v.Configs(metadata.GroupConfig)); n != len(names) {
		t.Errorf("expected %d groups, found %d", len(names), n)
	}
	stored, err := metadata.GetConfig(ctx, s, metadata.BrokerConfig, "1")
	if err != nil || stored.Revision != v.Config(metadata.BrokerConfig, "1").Revision {
		t.Errorf("stored: %+v, %v", stored, err)
	}
	stored.Revision--
	if _, err := metadata.AlterConfig(ctx, s, stored); !errors.Is(err, metadata.ErrFenced) {
		t.Errorf("an old revision: expected ErrFenced, found %v", err)
	}
	set(metadata.BrokerConfig, "1", nil)
	if c := v.Config(metadata.BrokerConfig, "1"); c.Revision != 0 || len(v.Configs(metadata.BrokerConfig)) != 1 {
		t.Errorf("emptied: found %+v", c)
	}
	again := openView(ctx, t, s, nil)
	if n := len(again.Configs(metadata.GroupConfig)); n != len(names) {
		t.Errorf("a new view: expected %d groups, found %d", len(names), n)
	}
}
