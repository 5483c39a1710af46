package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Setting is one line of the table: what the struct's tags say.
type Setting struct {
	Key, Default, Doc string
	field             int
}

// Settings lists every setting: those of the struct in its order, then those
// that have Kafka's meaning only.
func Settings() []Setting {
	t := reflect.TypeFor[Config]()
	out := make([]Setting, 0, t.NumField())
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		if tag.Get("key") == "" {
			continue
		}
		out = append(out, Setting{Key: tag.Get("key"), Default: tag.Get("default"), Doc: tag.Get("doc"), field: i})
	}
	return append(out, kafkaSettings()...)
}

// EnvName is the environment variable that overrides a setting.
func EnvName(key string) string {
	return "THERMOCLINE_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// Defaults returns a Config with every default set.
func Defaults() Config {
	var c Config
	for _, s := range Settings() {
		if s.Default == "" {
			continue
		}
		if err := c.Set(s.Key, s.Default); err != nil {
			panic(fmt.Sprintf("config: default of %s: %v", s.Key, err)) // a programmer's error, met by every test
		}
	}
	c.NodeID = -1
	return c
}

// Load reads path (none if empty), then the environment, then overrides, each
// winning over the one before, and validates the result. All problems are
// reported together; of a file that cannot be read, only that.
func Load(path string, getenv func(string) (string, bool), overrides map[string]string) (Config, error) {
	c := Defaults()
	r := reading{c: &c, unread: map[string]bool{}}
	if path != "" {
		flat, err := readFile(path)
		if err != nil {
			return c, err
		}
		for _, k := range sortedKeys(flat) {
			r.set(path, k, flat[k])
		}
	}
	for _, s := range Settings() {
		if v, ok := getenv(EnvName(s.Key)); ok {
			r.set("environment "+EnvName(s.Key), s.Key, v)
		}
	}
	for _, k := range sortedKeys(overrides) {
		r.set("--"+k, k, overrides[k])
	}
	for _, err := range c.Validate() {
		if !r.follows(err) {
			r.problems = append(r.problems, err)
		}
	}
	return c, errors.Join(r.problems...)
}

// reading gathers what is wrong with the settings that are read.
type reading struct {
	c        *Config
	problems []error
	// unread names the settings whose value could not be taken.
	unread map[string]bool
}

// set gives a setting the value that stands in a place.
func (r *reading) set(place, key, value string) {
	if err := r.c.Set(key, value); err != nil {
		r.problems = append(r.problems, fmt.Errorf("%s: %w", place, err))
		r.unread[key], r.unread[nearest(key)] = true, true
	}
}

// follows tells whether a rule is broken only by the default that stands where
// a value could not be taken: it says the same mistake twice.
func (r *reading) follows(rule error) bool {
	for word := range strings.FieldsSeq(rule.Error()) {
		if word = strings.TrimRight(word, ":,;"); word != "" && r.unread[word] {
			return true
		}
	}
	return false
}

// readFile returns a file's settings by their dotted names.
func readFile(path string) (map[string]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	var m map[string]any
	if err := yaml.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%s is not YAML: %w", path, err)
	}
	flat := make(map[string]string)
	flatten("", m, flat)
	return flat, nil
}

// flatten lets nested YAML (node: {id: 1}) name the same settings as dotted keys.
func flatten(prefix string, m map[string]any, out map[string]string) {
	for k, v := range m {
		key := k
		if prefix != "" {
			key = prefix + "." + k
		}
		switch v := v.(type) {
		case map[string]any:
			flatten(key, v, out)
		case []any:
			parts := make([]string, len(v))
			for i := range v {
				parts[i] = fmt.Sprint(v[i])
			}
			out[key] = strings.Join(parts, ",")
		case nil:
			out[key] = ""
		case float64: // 1e9 and 0.5: as digits, not as 1e+09
			out[key] = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			out[key] = fmt.Sprint(v)
		}
	}
}

// Set gives one setting a value as written in a file or on the command line.
func (c *Config) Set(key, value string) error {
	for _, s := range Settings() {
		if s.Key == key {
			if s.field < 0 {
				return c.setKafka(s, strings.TrimSpace(value))
			}
			if err := setField(reflect.ValueOf(c).Elem().Field(s.field), key, strings.TrimSpace(value)); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			return nil
		}
	}
	if near := nearest(key); near != "" {
		return fmt.Errorf("%s is not a setting; did you mean %s?", key, near)
	}
	return fmt.Errorf("%s is not a setting; `thermocline config show` lists them all", key)
}

// Get returns a setting's value as it would be written.
func (c *Config) Get(key string) string {
	for _, s := range Settings() {
		if s.Key == key && s.field < 0 {
			if v, ok := c.Kafka[key]; ok {
				return v
			}
			return s.Default
		}
		if s.Key == key {
			return format(reflect.ValueOf(c).Elem().Field(s.field))
		}
	}
	return ""
}

func setField(f reflect.Value, key, v string) error {
	switch f.Addr().Interface().(type) {
	case *string:
		f.SetString(v)
	case *[]string:
		var list []string
		for p := range strings.SplitSeq(v, ",") {
			if p = strings.TrimSpace(p); p != "" {
				list = append(list, p)
			}
		}
		f.Set(reflect.ValueOf(list))
	case *bool:
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("write true or false, not %q", v)
		}
		f.SetBool(b)
	case *int, *int32:
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return fmt.Errorf("write a whole number, not %q", v)
		}
		f.SetInt(n)
	case *Bytes:
		n, err := ParseBytes(v)
		if err != nil {
			return err
		}
		f.SetInt(int64(n))
	case *time.Duration:
		d, err := parseDuration(key, v)
		if err != nil {
			return err
		}
		f.SetInt(int64(d))
	default:
		return fmt.Errorf("no rule to read a %s", f.Type())
	}
	return nil
}

// parseDuration takes Go's notation, or a bare number in the unit that the
// key's last word names, as Kafka writes it (tiering.segment.ms: 30000).
func parseDuration(key, v string) (time.Duration, error) {
	if n, err := strconv.ParseInt(v, 10, 64); err == nil && strings.HasSuffix(key, ".ms") {
		return time.Duration(n) * time.Millisecond, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("write a duration such as 30s or 500ms, or milliseconds as a number, not %q", v)
	}
	return d, nil
}

var units = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseBytes reads 1048576, 64MiB or 1GB.
func ParseBytes(v string) (Bytes, error) {
	for _, u := range units {
		num, ok := strings.CutSuffix(v, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || n < 0 || n*float64(u.factor) > 1<<62 {
			break
		}
		return Bytes(n * float64(u.factor)), nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("write a size such as 64MiB or a number of bytes, not %q", v)
	}
	return Bytes(n), nil
}

// String writes the size with the largest unit that divides it.
func (b Bytes) String() string {
	for i := 3; i >= 0; i-- {
		if u := units[i]; b != 0 && int64(b)%u.factor == 0 {
			return strconv.FormatInt(int64(b)/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

func format(f reflect.Value) string {
	switch v := f.Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	default:
		return fmt.Sprint(v)
	}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// nearest returns the setting closest in spelling, if any is close.
func nearest(key string) string {
	best, bestDistance := "", 4
	for _, s := range Settings() {
		if d := distance(key, s.Key); d < bestDistance {
			best, bestDistance = s.Key, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		cur := make([]int, len(b)+1)
		cur[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			cur[j+1] = min(prev[j+1]+1, cur[j]+1, prev[j]+cost)
		}
		prev = cur
	}
	return prev[len(b)]
}
