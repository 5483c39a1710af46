package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"thermocline/ingest/brokerconfig"
)

// derived are settings of Kafka's that follow from others here.
var derived = []string{"authorizer.class.name", "broker.id", "log.dirs", "process.roles", "replica.selector.class"}

// kafkaSettings are the settings of Kafka's that have no field in Config: the
// defaults of topics, groups and transactions.
func kafkaSettings() []Setting {
	var out []Setting
	fields := reflect.TypeFor[Config]()
	named := map[string]bool{}
	for i := range fields.NumField() {
		named[fields.Field(i).Tag.Get("key")] = true
	}
	for _, d := range brokerconfig.All() {
		if named[d.Name] || slices.Contains(derived, d.Name) {
			continue
		}
		s := Setting{Key: d.Name, Default: d.Default, Doc: d.Doc, field: -1}
		if d.Null {
			s.Default = ""
		}
		if d.Why != "" {
			s.Doc += " No effect: " + d.Why + "."
		}
		out = append(out, s)
	}
	return out
}

// setKafka gives one of kafkaSettings a value; sizes and times may have units.
func (c *Config) setKafka(s Setting, value string) error {
	kafka := maps.Clone(c.Kafka) // copies of a Config share nothing that changes
	if kafka == nil {
		kafka = map[string]string{}
	}
	if value == s.Default {
		delete(kafka, s.Key)
		c.Kafka = kafka
		return nil
	}
	d, ok := brokerconfig.Lookup(s.Key)
	if !ok {
		return fmt.Errorf("no rule to read it") // not reached: kafkaSettings names rows of the table
	}
	value = plain(s.Key, value)
	if err := d.Check(value); err != nil {
		return err
	}
	kafka[s.Key] = value
	c.Kafka = kafka
	return nil
}

// plain turns 64MiB and 30s into what Kafka writes.
func plain(key, value string) string {
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		return value
	}
	if strings.HasSuffix(key, ".bytes") {
		if n, err := ParseBytes(value); err == nil {
			return strconv.FormatInt(int64(n), 10)
		}
	}
	if strings.HasSuffix(key, ".ms") {
		if d, err := time.ParseDuration(value); err == nil && d >= 0 {
			return strconv.FormatInt(d.Milliseconds(), 10)
		}
	}
	return value
}

// KafkaValue is a setting's value as Kafka would write it: sizes in bytes,
// times in milliseconds.
func (c *Config) KafkaValue(key string) string {
	if key == "default.replication.factor" && c.ReplicationFactor == 0 {
		return strconv.Itoa(c.ShardReplicas)
	}
	for _, s := range Settings() {
		if s.Key != key || s.field < 0 {
			continue
		}
		switch v := reflect.ValueOf(c).Elem().Field(s.field).Interface().(type) {
		case Bytes:
			return strconv.FormatInt(int64(v), 10)
		case time.Duration:
			return strconv.FormatInt(v.Milliseconds(), 10)
		}
	}
	return c.Get(key)
}

// Broker resolves Kafka's settings as the file says, before anything is set at
// run time: for the parts of a broker that are set up once.
func (c *Config) Broker() *brokerconfig.Values {
	file := map[string]string{}
	for _, s := range Settings() {
		d, ok := brokerconfig.Lookup(s.Key)
		if !ok {
			continue
		}
		if v := c.KafkaValue(s.Key); v != "" && v != d.Default {
			file[s.Key] = v
		}
	}
	return brokerconfig.NewValues(nil, nil, file)
}
