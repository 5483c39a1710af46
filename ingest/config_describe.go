package ingest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/brokerconfig"
	"thermocline/ingest/topicconfig"
	"thermocline/metadata"
)

type (
	configEntry   = kmsg.DescribeConfigsResponseResourceConfig
	configSynonym = kmsg.DescribeConfigsResponseResourceConfigConfigSynonym
)

// configDescriber answers for the resources of one request.
type configDescriber struct {
	srv            *Server
	values         *brokerconfig.Values
	synonyms, docs bool
}

func (d *configDescriber) resource(res *kmsg.DescribeConfigsRequestResource) ([]configEntry, error) {
	name, only := res.ResourceName, res.ConfigNames
	switch res.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if err := metadata.CheckTopicName(name); err != nil && !metadata.ReservedTopic(name) {
			return nil, err
		}
		row, ok := d.srv.cluster.TopicByName(name)
		if !ok {
			return nil, kerr.UnknownTopicOrPartition
		}
		return showDoubles(d.topic(row.Config, only)), nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return d.allBrokers(only), nil
		}
		if err := d.srv.isSelf(name); err != nil {
			return nil, err
		}
		return d.broker(only), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		if name == "" {
			return nil, refuse(kerr.InvalidRequest, "the broker's id must not be empty")
		}
		if err := d.srv.isSelf(name); err != nil {
			return nil, err
		}
		return d.loggers(only), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		return d.dynamic(metadata.GroupConfig, brokerconfig.Groups(), kmsg.ConfigSourceGroupConfig, name, only)
	case kmsg.ConfigResourceTypeClientMetrics:
		return d.dynamic(metadata.ClientMetricsConfig, brokerconfig.ClientMetrics(), kmsg.ConfigSourceClientMetricsConfig, name, only)
	}
	return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("resource type %d is not known", res.ResourceType))
}

// isSelf accepts this broker's id only: requests about a broker go to it.
func (s *Server) isSelf(name string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return refuse(kerr.InvalidRequest, fmt.Sprintf("the broker's id must be a number, not %q", name))
	}
	if metadata.BrokerID(id) != s.cluster.Self() {
		return refuse(kerr.InvalidRequest, fmt.Sprintf("broker %d answers for itself only, not for broker %d", s.cluster.Self(), id))
	}
	return nil
}

// wanted tells whether a request that names configs names this one.
func wanted(only []string, name string) bool { return len(only) == 0 || slices.Contains(only, name) }

// topic lists every topic config with its value and where it comes from.
func (d *configDescriber) topic(config map[string]string, only []string) []configEntry {
	var out []configEntry
	for _, def := range topicconfig.All() {
		if !wanted(only, def.Name) {
			continue
		}
		var chain []configSynonym
		if v, ok := config[def.Name]; ok {
			chain = append(chain, synonym(def.Name, v, kmsg.ConfigSourceDynamicTopicConfig))
		}
		for _, s := range d.values.TopicChain(&def) {
			chain = append(chain, synonym(s.Name, s.Value, sourceOf(s.Source)))
		}
		out = append(out, d.entry(&def, chain))
	}
	return out
}

// broker lists the settings of this broker: Kafka's, then those of its own.
func (d *configDescriber) broker(only []string) []configEntry {
	var out []configEntry
	known := brokerconfig.All()
	for i := range known {
		if wanted(only, known[i].Name) {
			out = append(out, d.setting(&known[i], d.values.Chain(known[i].Name)))
		}
	}
	for i := range d.srv.cfg.Own {
		def := &d.srv.cfg.Own[i]
		if !wanted(only, def.Name) {
			continue
		}
		chain := []brokerconfig.Synonym{{Name: def.Name, Value: def.Default, Source: brokerconfig.FromDefault}}
		if v := d.srv.cfg.Static[def.Name]; v != def.Default {
			chain = slices.Insert(chain, 0, brokerconfig.Synonym{Name: def.Name, Value: v, Source: brokerconfig.FromFile})
		}
		out = append(out, d.setting(def, chain))
	}
	own := d.srv.cluster.DynamicConfig(metadata.BrokerConfig, d.srv.selfName())
	return append(out, d.unknown(own.Config, kmsg.ConfigSourceDynamicBrokerConfig, only)...)
}

func (d *configDescriber) setting(def *brokerconfig.Def, from []brokerconfig.Synonym) configEntry {
	chain := make([]configSynonym, 0, len(from))
	for _, s := range from {
		chain = append(chain, synonym(s.Name, s.Value, sourceOf(s.Source)))
	}
	e := d.entry(&def.Def, chain)
	e.ReadOnly = def.Update == brokerconfig.ReadOnly
	if len(chain) == 0 && def.Null {
		e.Value = nil
	}
	return e
}

// allBrokers lists what was set at run time for all brokers.
func (d *configDescriber) allBrokers(only []string) []configEntry {
	var out []configEntry
	all := d.srv.cluster.DynamicConfig(metadata.BrokerConfig, "")
	for _, name := range slices.Sorted(maps.Keys(all.Config)) {
		def, ok := brokerconfig.Lookup(name)
		if !ok || !wanted(only, name) {
			continue
		}
		chain := d.values.Chain(name)
		chain = slices.DeleteFunc(chain, func(s brokerconfig.Synonym) bool { return s.Source == brokerconfig.FromBroker })
		out = append(out, d.setting(def, chain))
	}
	return append(out, d.unknown(all.Config, kmsg.ConfigSourceDynamicDefaultBrokerConfig, only)...)
}

// unknown lists what was set at run time under names that mean nothing here.
// What it is nobody knows, so that it is shown as a secret.
func (d *configDescriber) unknown(config map[string]string, source kmsg.ConfigSource, only []string) []configEntry {
	var out []configEntry
	for _, name := range slices.Sorted(maps.Keys(config)) {
		if _, known := brokerconfig.Lookup(name); known || !wanted(only, name) {
			continue
		}
		e := kmsg.NewDescribeConfigsResponseResourceConfig()
		e.Name, e.Source, e.IsSensitive = name, source, true
		out = append(out, e)
	}
	return out
}

func (d *configDescriber) loggers(only []string) []configEntry {
	if !wanted(only, rootLogger) {
		return nil
	}
	e := kmsg.NewDescribeConfigsResponseResourceConfig()
	level := d.srv.logLevel()
	e.Name, e.Value, e.Source = rootLogger, &level, kmsg.ConfigSourceDynamicBrokerLoggerConfig
	if d.synonyms {
		e.ConfigSynonyms = []configSynonym{synonym(rootLogger, level, e.Source)}
	}
	e.Documentation = new(string)
	return []configEntry{e}
}

// dynamic lists the configs of a group or of a client metrics subscription.
func (d *configDescriber) dynamic(kind metadata.ConfigKind, defs []brokerconfig.Def, source kmsg.ConfigSource, name string, only []string) ([]configEntry, error) {
	if name == "" {
		return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("the name of a %s must not be empty", kind))
	}
	set := d.srv.cluster.DynamicConfig(kind, name)
	var out []configEntry
	for i := range defs {
		def := &defs[i].Def
		if !wanted(only, def.Name) {
			continue
		}
		var chain []configSynonym
		if v, ok := set.Config[def.Name]; ok {
			chain = append(chain, synonym(def.Name, v, source))
		}
		for _, s := range d.values.Chain(def.Broker) {
			chain = append(chain, synonym(s.Name, s.Value, sourceOf(s.Source)))
		}
		out = append(out, d.entry(def, chain))
	}
	return out, nil
}

// entry describes a config whose value comes from the first of chain, or is
// the default.
func (d *configDescriber) entry(def *topicconfig.Def, chain []configSynonym) configEntry {
	e := kmsg.NewDescribeConfigsResponseResourceConfig()
	e.Name, e.ConfigType = def.Name, configType(def.Type)
	value := def.Default
	e.Value, e.Source = &value, kmsg.ConfigSourceDefaultConfig
	if len(chain) > 0 {
		e.Value, e.Source = chain[0].Value, chain[0].Source
	}
	e.IsDefault = e.Source == kmsg.ConfigSourceDefaultConfig
	if d.synonyms {
		e.ConfigSynonyms = chain
	}
	if d.docs {
		e.Documentation = documentation(def)
	}
	return e
}

// showDoubles shows fractions as Kafka's DescribeConfigs does. Its CreateTopics
// shows them as they were set.
func showDoubles(entries []configEntry) []configEntry {
	for i := range entries {
		if e := &entries[i]; e.ConfigType == kmsg.ConfigTypeDouble && e.Value != nil {
			shown := shownDouble(*e.Value)
			e.Value = &shown
		}
	}
	return entries
}

// shownDouble is a fraction as Java writes it: 0.0 for 0.
func shownDouble(v string) string {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return v
	}
	const small, large = 1e-3, 1e7 // beyond these Java writes an exponent
	if a := math.Abs(f); a != 0 && (a < small || a >= large) {
		digits, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, 64), "E")
		n, _ := strconv.Atoi(exponent) // just written
		return withFraction(digits) + "E" + strconv.Itoa(n)
	}
	return withFraction(strconv.FormatFloat(f, 'f', -1, 64))
}

func withFraction(digits string) string {
	if strings.Contains(digits, ".") {
		return digits
	}
	return digits + ".0"
}

func synonym(name, value string, source kmsg.ConfigSource) configSynonym {
	c := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
	c.Name, c.Value, c.Source = name, &value, source
	return c
}

func sourceOf(s brokerconfig.Source) kmsg.ConfigSource {
	switch s {
	case brokerconfig.FromBroker:
		return kmsg.ConfigSourceDynamicBrokerConfig
	case brokerconfig.FromCluster:
		return kmsg.ConfigSourceDynamicDefaultBrokerConfig
	case brokerconfig.FromFile:
		return kmsg.ConfigSourceStaticBrokerConfig
	}
	return kmsg.ConfigSourceDefaultConfig
}

func documentation(d *topicconfig.Def) *string {
	text := d.Doc
	switch d.Handling {
	case topicconfig.Stored:
		text += " Stored without effect: " + d.Why + "."
	case topicconfig.Refused:
		text += " Only " + d.Default + " is accepted: " + d.Why + "."
	}
	return &text
}

func configType(t topicconfig.Type) kmsg.ConfigType {
	switch t {
	case topicconfig.Bool:
		return kmsg.ConfigTypeBoolean
	case topicconfig.String:
		return kmsg.ConfigTypeString
	case topicconfig.Int:
		return kmsg.ConfigTypeInt
	case topicconfig.Long:
		return kmsg.ConfigTypeLong
	case topicconfig.Double:
		return kmsg.ConfigTypeDouble
	case topicconfig.List:
		return kmsg.ConfigTypeList
	}
	return kmsg.ConfigTypeUnknown
}
