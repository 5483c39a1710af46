// Package topicconfig holds the one table of Kafka's topic configs: what each
// is, whether it is honoured, only stored, or refused, and why. CreateTopics,
// IncrementalAlterConfigs and DescribeConfigs work from it, and Effective
// turns a topic's stored strings into the values that the broker uses.
package topicconfig

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"thermocline/wal/batch"
)

// Type is the kind of a value.
type Type int8

// The kinds of values, as DescribeConfigs names them.
const (
	Bool Type = iota + 1
	String
	Int
	Long
	Double
	List
)

// Handling says what the broker does with a config.
type Handling int8

const (
	// Honoured: the broker acts on it.
	Honoured Handling = iota + 1
	// Stored: accepted, kept and shown, so that tools which set it work; Def.Why says why it has no effect.
	Stored
	// Refused: only the default is accepted, since any other value would promise what is not done.
	Refused
)

// Def is one row of the table.
type Def struct {
	Name string
	Type Type
	// Default is what applies where neither topic nor broker says otherwise.
	Default string
	// Broker is the broker setting that gives the default, empty if there is none.
	Broker   string
	Handling Handling
	// Why gives the reason for Stored and Refused.
	Why string
	Doc string
	// Min and Max bound numbers.
	Min, Max float64
	// Values lists what a String or the members of a List may be; nil: anything.
	Values []string
}

// ErrInvalid is what every refusal wraps.
var ErrInvalid = errors.New("invalid config")

var byName = func() map[string]*Def {
	m := make(map[string]*Def, len(table))
	for i := range table {
		m[table[i].Name] = &table[i]
	}
	return m
}()

// All returns the table, ordered by name. It is not to be changed.
func All() []Def { return table }

// Lookup finds a config by name.
func Lookup(name string) (*Def, bool) {
	d, ok := byName[name]
	return d, ok
}

// Check says whether value may be set.
func (d *Def) Check(value string) error {
	if err := d.parse(strings.TrimSpace(value)); err != nil {
		return fmt.Errorf("%w: %s is %q: %v", ErrInvalid, d.Name, value, err)
	}
	if d.Handling == Refused && !d.isDefault(value) {
		return fmt.Errorf("%w: %s is %q: only %q is supported: %s", ErrInvalid, d.Name, value, d.Default, d.Why)
	}
	return nil
}

func (d *Def) isDefault(value string) bool {
	return strings.EqualFold(strings.TrimSpace(value), d.Default)
}

func (d *Def) parse(v string) error {
	switch d.Type {
	case Bool:
		if !strings.EqualFold(v, "true") && !strings.EqualFold(v, "false") {
			return errors.New("write true or false")
		}
	case Int, Long:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || float64(n) < d.Min || float64(n) > d.Max {
			return fmt.Errorf("write a whole number from %.0f to %s", d.Min, wholeText(d.Max))
		}
	case Double:
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(f) || f < d.Min || f > d.Max {
			return fmt.Errorf("write a number from %g to %g", d.Min, d.Max)
		}
	case String:
		if d.Values != nil && !slices.Contains(d.Values, v) {
			return fmt.Errorf("write one of %s", strings.Join(d.Values, ", "))
		}
	case List:
		for _, m := range Members(v) {
			if d.Values != nil && !slices.Contains(d.Values, m) {
				return fmt.Errorf("write a list of %s", strings.Join(d.Values, ", "))
			}
		}
	}
	return nil
}

// wholeText writes a bound. The largest int64 is no float64: the nearest one is
// one more, which nobody may write.
func wholeText(bound float64) string {
	if bound >= math.MaxInt64 {
		return strconv.FormatInt(math.MaxInt64, 10)
	}
	return strconv.FormatFloat(bound, 'f', 0, 64)
}

// Members splits a list's value.
func Members(v string) []string {
	var out []string
	for _, m := range strings.Split(v, ",") {
		if m = strings.TrimSpace(m); m != "" {
			out = append(out, m)
		}
	}
	return out
}

// Limits are the bounds that the cluster sets to topic configs.
type Limits struct {
	// MaxMessageBytes bounds max.message.bytes, 0: not at all.
	MaxMessageBytes int64
	// MinInsyncMax bounds min.insync.replicas: what the ack policy guarantees.
	MinInsyncMax int64
}

// Validate checks a whole config.
func Validate(config map[string]string, l Limits) error {
	names := make([]string, 0, len(config))
	for name := range config {
		names = append(names, name)
	}
	slices.Sort(names) // so that of several faults always the same one is told
	for _, name := range names {
		d, ok := Lookup(name)
		if !ok {
			return fmt.Errorf("%w: unknown topic config name: %s", ErrInvalid, name)
		}
		if err := d.Check(config[name]); err != nil {
			return err
		}
	}
	if v, ok := config["max.message.bytes"]; ok && l.MaxMessageBytes > 0 && number(v) > l.MaxMessageBytes {
		return fmt.Errorf("%w: max.message.bytes is %s: write at most %d, the largest request the brokers accept", ErrInvalid, v, l.MaxMessageBytes)
	}
	if v, ok := config["min.insync.replicas"]; ok && l.MinInsyncMax > 0 && number(v) > l.MinInsyncMax {
		return fmt.Errorf("%w: min.insync.replicas is %s: with ack.policy quorum a record is on %d replicas before its ack; write at most that", ErrInvalid, v, l.MinInsyncMax)
	}
	return nil
}

func number(v string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	return n
}

// Effective is what the broker acts on.
type Effective struct {
	MaxMessageBytes int
	LogAppendTime   bool
	// TimestampBeforeMax and TimestampAfterMax are milliseconds, -1 for no bound.
	TimestampBeforeMax, TimestampAfterMax int64
	// Codec is batch.CodecProducer to keep the producer's.
	Codec batch.Codec
	// Level of Codec; 0 for the codec's default.
	Level     int
	Compacted bool
	// Deletes: records go by age, size and request. A topic that is compacted
	// alone keeps them.
	Deletes bool
}

// Of derives the effective values. Values that do not parse (they were checked
// when they were set) give the default.
func Of(config map[string]string, maxMessageBytes int) Effective {
	e := Effective{
		MaxMessageBytes:    maxMessageBytes,
		TimestampBeforeMax: bound(config, "message.timestamp.before.max.ms"),
		TimestampAfterMax:  bound(config, "message.timestamp.after.max.ms"),
		LogAppendTime:      config["message.timestamp.type"] == "LogAppendTime",
		Codec:              batch.CodecProducer,
		Deletes:            true,
	}
	if policy, set := config["cleanup.policy"]; set {
		e.Compacted, e.Deletes = slices.Contains(Members(policy), "compact"), slices.Contains(Members(policy), "delete")
	}
	if v, err := strconv.Atoi(strings.TrimSpace(config["max.message.bytes"])); err == nil {
		e.MaxMessageBytes = v
	}
	name := config["compression.type"]
	if name == "" || name == "producer" {
		return e
	}
	if name == "uncompressed" {
		name = "none"
	}
	if c, err := batch.ParseCodec(name); err == nil {
		e.Codec = c
		e.Level, _ = strconv.Atoi(strings.TrimSpace(config["compression."+name+".level"]))
	}
	return e
}

func bound(config map[string]string, name string) int64 {
	v, ok := config[name]
	if !ok {
		v = byName[name].Default
	}
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	if err != nil || n == math.MaxInt64 {
		return -1
	}
	return n
}
