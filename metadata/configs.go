package metadata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// ConfigKind says what a DynamicConfig belongs to.
type ConfigKind string

// The kinds of dynamic configs. Topics keep theirs in the topic row.
const (
	// BrokerConfig: Name is the broker's id in decimal, or empty for the
	// default of all brokers.
	BrokerConfig ConfigKind = "broker"
	// GroupConfig: Name is the group's id.
	GroupConfig ConfigKind = "group"
	// ClientMetricsConfig: Name is a subscription's (KIP-714).
	ClientMetricsConfig ConfigKind = "client-metrics"
)

// DynamicConfig is what was set at run time on a broker, on all brokers or on a
// group. What a View handed out never changes.
type DynamicConfig struct {
	Kind   ConfigKind
	Name   string
	Config map[string]string
	// Revision orders versions of the row; 0 when there is none.
	Revision int64
}

type configRow struct {
	V      int               `json:"v"`
	Kind   ConfigKind        `json:"kind"`
	Name   string            `json:"name"`
	Config map[string]string `json:"config"`
}

// defaultConfigName stands in keys for the empty name. No broker id is it, and
// a group of that name has a key below another kind.
const defaultConfigName = "default"

func configKey(kind ConfigKind, name string) string {
	if kind == BrokerConfig && name == "" {
		name = defaultConfigName
	}
	return prefixConfigs + string(kind) + "/" + url.QueryEscape(name)
}

func encodeConfig(c *DynamicConfig) []byte {
	return encodeJSON(configRow{V: jsonVersion, Kind: c.Kind, Name: c.Name, Config: c.Config})
}

func decodeConfig(r Row) (*DynamicConfig, error) {
	var row configRow
	if err := decodeJSON(r, &row); err != nil {
		return nil, err
	}
	if configKey(row.Kind, row.Name) != r.Key {
		return nil, fmt.Errorf("row %s: found the config of %s %q: %w", r.Key, row.Kind, row.Name, ErrCorrupt)
	}
	return &DynamicConfig{Kind: row.Kind, Name: row.Name, Config: row.Config, Revision: r.Modified}, nil
}

// AlterConfig replaces a dynamic config unless its row is no longer of that
// revision (0: there is none): then ErrFenced. An empty config removes the row.
// It returns the store's revision after the write.
func AlterConfig(ctx context.Context, s Store, c DynamicConfig) (int64, error) {
	if len(c.Config) > topicConfigMax {
		return 0, fmt.Errorf("config of %s %q: expected at most %d entries, found %d: %w", c.Kind, c.Name, topicConfigMax, len(c.Config), ErrTooLarge)
	}
	texts := append([]string{c.Name}, slices.Collect(maps.Values(c.Config))...)
	for _, t := range slices.AppendSeq(texts, maps.Keys(c.Config)) {
		if !utf8.ValidString(t) {
			return 0, fmt.Errorf("config of %s %q: %q is not UTF-8", c.Kind, c.Name, t)
		}
	}
	key := configKey(c.Kind, c.Name)
	w := Write{Key: key, Delete: true}
	if len(c.Config) > 0 {
		w = Write{Key: key, Value: encodeConfig(&c)}
	} else if c.Revision == 0 {
		return 0, nil
	}
	rev, err := s.Commit(ctx, Txn{Guards: []Guard{{Key: key, Revision: c.Revision}}, Writes: []Write{w}})
	if err != nil {
		return 0, fmt.Errorf("config of %s %q: %w", c.Kind, c.Name, err)
	}
	return rev, nil
}

// GetConfig reads a dynamic config from the store, not from a view; one that
// was never set is empty, with revision 0.
func GetConfig(ctx context.Context, s Store, kind ConfigKind, name string) (DynamicConfig, error) {
	r, err := s.Get(ctx, configKey(kind, name))
	if errors.Is(err, ErrNotFound) {
		return DynamicConfig{Kind: kind, Name: name}, nil
	}
	if err != nil {
		return DynamicConfig{}, fmt.Errorf("config of %s %q: %w", kind, name, err)
	}
	c, err := decodeConfig(r)
	if err != nil {
		return DynamicConfig{}, err
	}
	return *c, nil
}

// Config returns what was set at run time; one that was never set is empty,
// with revision 0.
func (v *View) Config(kind ConfigKind, name string) DynamicConfig {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if c := v.configs[configKey(kind, name)]; c != nil {
		return *c
	}
	return DynamicConfig{Kind: kind, Name: name}
}

// Configs lists the dynamic configs of a kind that are not empty, in order of
// their keys.
func (v *View) Configs(kind ConfigKind) []DynamicConfig {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var out []DynamicConfig
	for _, key := range slices.Sorted(maps.Keys(v.configs)) {
		if strings.HasPrefix(key, prefixConfigs+string(kind)+"/") {
			out = append(out, *v.configs[key])
		}
	}
	return out
}

// ConfigVersion rises with each change of any dynamic config. It takes no lock,
// so that what is derived from them can be kept until it has risen.
func (v *View) ConfigVersion() int64 { return v.configVersion.Load() }

func (v *View) applyConfig(c *Change) error {
	defer v.configVersion.Add(1)
	if c.Deleted {
		delete(v.configs, c.Row.Key)
		return nil
	}
	d, err := decodeConfig(c.Row)
	if err == nil {
		v.configs[c.Row.Key] = d
	}
	return err
}
