package differential

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Rule is one difference that may be.
type Rule struct {
	// Keys are the API keys concerned; none: all.
	Keys []int16
	// Group, if set, must match the whole name of the group that the request is
	// for. Answers that tell of several groups name them in their paths.
	Group *regexp.Regexp
	// Path matches the whole path of a field.
	Path *regexp.Regexp
	// Kafka and Thermocline, if set, must match the whole values.
	Kafka, Thermocline *regexp.Regexp
	// Both, if set, must hold for the two values.
	Both func(kafka, thermocline string) bool
	Why  string
}

func (r *Rule) covers(key int16, group, path, kafka, thermocline string) bool {
	return (len(r.Keys) == 0 || slices.Contains(r.Keys, key)) && r.Path.MatchString(path) &&
		(r.Group == nil || r.Group.MatchString(group)) &&
		(r.Both == nil || r.Both(kafka, thermocline)) &&
		(r.Kafka == nil || r.Kafka.MatchString(kafka)) && (r.Thermocline == nil || r.Thermocline.MatchString(thermocline))
}

// Difference is one field in which the answers to one request differ.
type Difference struct {
	Path, Kafka, Thermocline string
}

const absent = "(absent)"

// Compare lists the differences between two answers to a request that no rule
// covers. An element that only one side has is one difference, whatever it holds.
func Compare(req kmsg.Request, kafka, thermocline map[string]string) []Difference {
	key, group := req.Key(), groupOf(req)
	var out []Difference
	paths := maps.Clone(kafka)
	maps.Copy(paths, thermocline)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		k, t := valueAt(kafka, path), valueAt(thermocline, path)
		if k == t || covered(key, group, path, k, t) || within(kafka, thermocline, path) {
			continue
		}
		out = append(out, Difference{path, k, t})
	}
	return out
}

func valueAt(m map[string]string, path string) string {
	if v, ok := m[path]; ok {
		return v
	}
	return absent
}

func covered(key int16, group, path, kafka, thermocline string) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.covers(key, group, path, kafka, thermocline) })
}

// groupOf is the group that a request is for, if it is for one.
func groupOf(req kmsg.Request) string {
	if f := reflect.ValueOf(req).Elem().FieldByName("Group"); f.IsValid() {
		return f.String()
	}
	return ""
}

// within tells whether path lies in an element that only one side has.
func within(kafka, thermocline map[string]string, path string) bool {
	for at := range len(path) - 1 {
		if path[at] == ']' && (valueAt(kafka, path[:at+1]) == absent) != (valueAt(thermocline, path[:at+1]) == absent) {
			return true
		}
	}
	return false
}

// signature is what a difference has in common with its like: the same field,
// of whatever topic and partition.
func signature(key int16, d Difference) string {
	path := elements.ReplaceAllString(d.Path, "[]")
	return fmt.Sprintf("%s %s: Kafka %.80s, Thermocline %.80s", kmsg.NameForKey(key), path, d.Kafka, d.Thermocline)
}

var elements = regexp.MustCompile(`\[[^\]]*\]`)
