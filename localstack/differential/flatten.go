package differential

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Flatten turns an answer into paths and values: Topics[t].Partitions[0].ErrorCode.
// Lists of structs are keyed by what names their elements, so that their order
// does not matter; empty and null lists are the same.
func (s *Side) Flatten(resp kmsg.Response) map[string]string {
	out := map[string]string{}
	s.flatten(out, "", reflect.ValueOf(resp).Elem())
	if d, ok := resp.(*kmsg.ConsumerGroupDescribeResponse); ok {
		for i := range d.Groups {
			s.targets(out, &d.Groups[i])
		}
	}
	return out
}

// targets adds what the targets of all members of a group are together.
func (s *Side) targets(out map[string]string, g *kmsg.ConsumerGroupDescribeResponseGroup) {
	all := map[string][]int32{}
	for _, m := range g.Members {
		for _, t := range m.TargetAssignment.TopicPartitions {
			all[t.Topic] = append(all[t.Topic], t.Partitions...)
		}
	}
	for topic, partitions := range all {
		slices.Sort(partitions)
		out[fmt.Sprintf("Groups[%s].Targets[%s]", g.Group, topic)] = fmt.Sprint(partitions)
	}
}

// keyFields name an element of a list, the first that is there.
var keyFields = []string{"Topic", "TopicID", "Name", "Partition", "ApiKey", "ResourceName", "Key", "NodeID", "User", "TransactionalID", "Dir", "Group", "MemberID"}

func (s *Side) flatten(out map[string]string, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			out[path] = "null"
			return
		}
		s.flatten(out, path, v.Elem())
	case reflect.Struct:
		s.flattenStruct(out, path, v)
	case reflect.Slice:
		s.flattenSlice(out, path, v)
	case reflect.Array:
		if id, ok := v.Interface().([16]byte); ok {
			out[path] = s.topicOf(id)
			return
		}
		out[path] = fmt.Sprint(v.Interface())
	case reflect.String:
		out[path] = s.called(v.String())
	default:
		out[path] = fmt.Sprint(v.Interface())
	}
}

func (s *Side) flattenStruct(out map[string]string, path string, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() || f.Name == "Version" || f.Name == "UnknownTags" {
			continue
		}
		name := f.Name
		if path != "" {
			name = path + "." + f.Name
		}
		s.flatten(out, name, v.Field(i))
	}
}

func (s *Side) flattenSlice(out map[string]string, path string, v reflect.Value) {
	switch list := v.Interface().(type) {
	case []byte:
		out[path] = fmt.Sprintf("%x", list)
		switch {
		case strings.HasSuffix(path, "RecordBatches"):
			out[path] = batches(list)
		case strings.HasSuffix(path, "MemberAssignment"):
			s.flattenAssignment(out, path, list)
		}
		return
	case []int32:
		sorted := slices.Sorted(slices.Values(list))
		out[path] = fmt.Sprint(sorted)
		return
	case []string:
		sorted := slices.Sorted(slices.Values(list))
		out[path] = fmt.Sprint(sorted)
		return
	}
	if v.Type().Elem().Kind() != reflect.Struct {
		out[path] = fmt.Sprint(v.Interface())
		return
	}
	seen := map[string]int{}
	for i := range v.Len() {
		key := s.key(v.Index(i), i)
		seen[key]++
		if n := seen[key]; n > 1 {
			key = fmt.Sprintf("%s#%d", key, n)
		}
		at := path + "[" + key + "]"
		out[at] = "is there"
		s.flatten(out, at, v.Index(i))
	}
}

// flattenAssignment adds what a client would read of an assignment, whose
// topics are in no order, if it is one that a coordinator has made.
func (s *Side) flattenAssignment(out map[string]string, path string, b []byte) {
	var a kmsg.ConsumerMemberAssignment
	if a.ReadFrom(b) == nil && bytes.Equal(a.AppendTo(nil), b) {
		out[path] = "an assignment"
		s.flatten(out, path, reflect.ValueOf(a))
	}
}

// called is the name that both sides share, if v is an id of a member.
func (s *Side) called(v string) string {
	if name, ok := s.memberNames[v]; ok {
		return name
	}
	return v
}

// key names an element of a list.
func (s *Side) key(v reflect.Value, i int) string {
	for _, name := range keyFields {
		f := v.FieldByName(name)
		if !f.IsValid() {
			continue
		}
		if f.Kind() == reflect.Pointer {
			if f.IsNil() {
				continue
			}
			f = f.Elem()
		}
		switch k := f.Interface().(type) {
		case [16]byte:
			if k != [16]byte{} {
				return s.topicOf(k)
			}
		case string:
			if k != "" || name == "ResourceName" || name == "Group" || name == "Key" {
				return s.called(k)
			}
		default:
			return fmt.Sprint(k)
		}
	}
	return fmt.Sprint(i)
}

// batches describes stored batches: whole ones only, since the last one may be
// cut, and without the leader epoch and timestamps that each side gives.
func batches(b []byte) string {
	const header, fixed = 12, 61
	var out []string
	for len(b) >= fixed {
		n := header + int(binary.BigEndian.Uint32(b[8:]))
		if n < fixed || n > len(b) {
			break
		}
		one := b[:n]
		attributes := binary.BigEndian.Uint16(one[21:])
		out = append(out, fmt.Sprintf("%d+%d codec %d producer %d/%d/%d",
			binary.BigEndian.Uint64(one), binary.BigEndian.Uint32(one[23:]), attributes&7,
			int64(binary.BigEndian.Uint64(one[43:])), int16(binary.BigEndian.Uint16(one[51:])), int32(binary.BigEndian.Uint32(one[53:]))))
		b = b[n:]
	}
	return strings.Join(out, ", ")
}
