// Package brokerconfig holds the one table of Kafka's broker settings that
// mean something here, and resolves what is in force on a broker: from what
// was set at run time on the broker, on all brokers, in the broker's file, and
// the default, in that order. Topics inherit their defaults from it.
package brokerconfig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"thermocline/ingest/topicconfig"
)

// Update says where a setting may be changed.
type Update int8

const (
	// ReadOnly: in the broker's file only.
	ReadOnly Update = iota
	// Dynamic: also at run time, on one broker or on all.
	Dynamic
)

// Def is one setting. A Default of Null stands for Kafka's null.
type Def struct {
	topicconfig.Def
	Update Update
	// Null: the default is null, and another setting decides.
	Null bool
}

// ErrNotDynamic: the setting cannot be changed at run time.
var ErrNotDynamic = errors.New("setting cannot be changed at run time")

var (
	table  = build()
	byName = func() map[string]*Def {
		m := make(map[string]*Def, len(table))
		for i := range table {
			m[table[i].Name] = &table[i]
		}
		return m
	}()
)

// build joins the settings of the brokers with those that topics inherit.
func build() []Def {
	out := slices.Clone(rows)
	for _, t := range topicconfig.All() {
		if t.Broker == "" {
			continue
		}
		d := Def{Def: t, Update: Dynamic}
		d.Name, d.Broker = t.Broker, ""
		d.Null = slices.Contains(nullDefaults, d.Name)
		d.Doc = "Default of the topic config " + t.Name + ". " + t.Doc
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Def) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// All returns the table, ordered by name. It is not to be changed.
func All() []Def { return table }

// Lookup finds a setting by name.
func Lookup(name string) (*Def, bool) {
	d, ok := byName[name]
	return d, ok
}

// Source says which layer a value comes from.
type Source int8

// The layers, the first one that has a value wins.
const (
	FromBroker  Source = iota // set at run time on this broker
	FromCluster               // set at run time on all brokers
	FromFile                  // in the broker's file, or its environment or flags
	FromDefault
)

// Synonym is one place that a value may come from.
type Synonym struct {
	Name, Value string
	Source      Source
}

// Values are the settings in force on one broker. They never change.
type Values struct {
	layers [3]map[string]string // by Source, without FromDefault
}

// NewValues joins the layers; each may be nil. The maps are kept.
func NewValues(broker, cluster, file map[string]string) *Values {
	return &Values{layers: [3]map[string]string{broker, cluster, file}}
}

// With returns the same settings with other layers of what was set at run time;
// each may be nil. The maps are kept.
func (v *Values) With(broker, cluster map[string]string) *Values {
	return NewValues(broker, cluster, v.layers[FromFile])
}

// Chain lists where a setting's value comes from, the one in force first. It is
// empty for a setting that is null.
func (v *Values) Chain(name string) []Synonym {
	var out []Synonym
	for source, layer := range v.layers {
		if value, ok := layer[name]; ok {
			out = append(out, Synonym{name, value, Source(source)})
		}
	}
	if d, ok := Lookup(name); ok && !d.Null {
		out = append(out, Synonym{name, d.Default, FromDefault})
	}
	return out
}

// Get returns a setting's value; false if it is null.
func (v *Values) Get(name string) (string, bool) {
	for _, layer := range v.layers {
		if value, ok := layer[name]; ok {
			return value, true
		}
	}
	if d, ok := Lookup(name); ok && !d.Null {
		return d.Default, true
	}
	return "", false
}

// String returns a setting's value, empty if it is null.
func (v *Values) String(name string) string {
	value, _ := v.Get(name)
	return strings.TrimSpace(value)
}

// Int returns a number; 0 if it is null. Values were checked when they were set.
func (v *Values) Int(name string) int64 {
	n, err := strconv.ParseInt(v.String(name), 10, 64)
	if err != nil {
		if d, ok := Lookup(name); ok {
			n, _ = strconv.ParseInt(d.Default, 10, 64)
		}
	}
	return n
}

// Millis returns a number of milliseconds as a duration.
func (v *Values) Millis(name string) time.Duration {
	return time.Duration(min(v.Int(name), int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
}

// Bool returns a truth value.
func (v *Values) Bool(name string) bool { return strings.EqualFold(v.String(name), "true") }

// List returns the members of a list.
func (v *Values) List(name string) []string { return topicconfig.Members(v.String(name)) }

// TopicChain lists where a topic config's value comes from when the topic
// itself does not set it, the one in force first. It may be empty: then the
// topic config's own default holds.
func (v *Values) TopicChain(d *topicconfig.Def) []Synonym {
	if d.Broker == "" {
		return nil
	}
	chain := v.Chain(d.Broker)
	for _, c := range coarser[d.Broker] {
		for _, s := range v.Chain(c.name) {
			n, err := strconv.ParseInt(strings.TrimSpace(s.Value), 10, 64)
			if err != nil || s.Source == FromDefault {
				continue
			}
			if n >= 0 {
				n *= c.millis
			}
			chain = append(chain, Synonym{c.name, strconv.FormatInt(n, 10), s.Source})
		}
	}
	return chain
}

// TopicDefault returns what a topic has that does not set the config itself.
func (v *Values) TopicDefault(d *topicconfig.Def) string {
	if chain := v.TopicChain(d); len(chain) > 0 {
		return chain[0].Value
	}
	return d.Default
}

// TopicConfig returns a topic's config with every default that a broker setting
// gives filled in: what topicconfig.Of and retention work from.
func (v *Values) TopicConfig(config map[string]string) map[string]string {
	all := topicconfig.All()
	out := make(map[string]string, len(all))
	for i := range all {
		d := &all[i]
		if value, ok := config[d.Name]; ok {
			out[d.Name] = value
		} else {
			out[d.Name] = v.TopicDefault(d)
		}
	}
	return out
}

// CheckDynamic says whether a whole run-time config may stand. Names that the
// table does not have are kept and mean nothing, as Kafka does with them.
func CheckDynamic(config map[string]string) error {
	names := make([]string, 0, len(config))
	for name := range config {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		d, ok := Lookup(name)
		if !ok {
			continue
		}
		if d.Update == ReadOnly {
			return fmt.Errorf("%s: %w; it is in the broker's file", name, ErrNotDynamic)
		}
		if err := d.Check(config[name]); err != nil {
			return err
		}
	}
	return nil
}
