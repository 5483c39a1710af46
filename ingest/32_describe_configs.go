package ingest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/topicconfig"
)

// DescribeConfigs v1-4.
//
// Topics from the one table of topic configs; brokers from the settings in
// force, all read-only: they are set in the broker's file. A broker answers for
// itself only, as Kafka does; the name "" asks for cluster-wide defaults, of
// which there are none. v3 adds types and documentation. A config that is
// stored or refused says so, with the reason, in its documentation.
func describeConfigsAPI() api {
	h, n := serve(kmsg.NewPtrDescribeConfigsRequest, (*Server).handleDescribeConfigs)
	return api{key: 32, name: "DescribeConfigs", min: 1, max: 4, handle: h, newRequest: n}
}

func (s *Server) handleDescribeConfigs(r *request, req *kmsg.DescribeConfigsRequest) {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = r.version
	for i := range req.Resources {
		res := &req.Resources[i]
		dr := kmsg.NewDescribeConfigsResponseResource()
		dr.ResourceType, dr.ResourceName = res.ResourceType, res.ResourceName
		var configs []configEntry
		err := refuse(kerr.InvalidRequest, fmt.Sprintf("the request names more than %d resources", maxDescribed))
		if i < maxDescribed {
			configs, err = s.describeResource(res, req.IncludeSynonyms, req.IncludeDocumentation)
		}
		dr.Configs, dr.ErrorCode, dr.ErrorMessage = configs, code(err), message(err)
		resp.Resources = append(resp.Resources, dr)
	}
	r.finish(resp)
}

type configEntry = kmsg.DescribeConfigsResponseResourceConfig

func (s *Server) describeResource(res *kmsg.DescribeConfigsRequestResource, synonyms, docs bool) ([]configEntry, error) {
	switch res.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		row, ok := s.cluster.TopicByName(res.ResourceName)
		if !ok {
			return nil, kerr.UnknownTopicOrPartition
		}
		return s.describeTopic(row.Config, res.ConfigNames, synonyms, docs), nil
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
		if res.ResourceName == "" && res.ResourceType == kmsg.ConfigResourceTypeBroker {
			return nil, nil
		}
		if self := strconv.Itoa(int(s.cluster.Self())); res.ResourceName != self {
			return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("broker %s answers for itself only, not for broker %q", self, res.ResourceName))
		}
		if res.ResourceType == kmsg.ConfigResourceTypeBrokerLogger {
			return nil, nil
		}
		return s.describeBroker(res.ConfigNames, synonyms), nil
	case kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
		return nil, nil
	}
	return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("resource type %d is not known", res.ResourceType))
}

// describeTopic lists every topic config with its value and where it comes from.
func (s *Server) describeTopic(config map[string]string, names []string, synonyms, docs bool) []configEntry {
	static := s.brokerSettings()
	var out []configEntry
	for _, d := range topicconfig.All() {
		if len(names) > 0 && !slices.Contains(names, d.Name) {
			continue
		}
		e := kmsg.NewDescribeConfigsResponseResourceConfig()
		e.Name, e.ConfigType = d.Name, configType(d.Type)
		chain := synonymsOf(&d, config, static)
		e.Value, e.Source = chain[0].Value, chain[0].Source
		e.IsDefault = e.Source == kmsg.ConfigSourceDefaultConfig
		if synonyms {
			e.ConfigSynonyms = chain
		}
		if docs {
			e.Documentation = documentation(&d)
		}
		out = append(out, e)
	}
	return out
}

// synonymsOf lists where a config's value may come from, the one in force first.
func synonymsOf(d *topicconfig.Def, config, static map[string]string) []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	var chain []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym
	add := func(name, value string, source kmsg.ConfigSource) {
		c := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		c.Name, c.Value, c.Source = name, &value, source
		chain = append(chain, c)
	}
	if v, ok := config[d.Name]; ok {
		add(d.Name, v, kmsg.ConfigSourceDynamicTopicConfig)
	}
	if v, ok := static[d.Broker]; ok && d.Broker != "" {
		add(d.Broker, v, kmsg.ConfigSourceStaticBrokerConfig)
	}
	name := d.Broker
	if name == "" {
		name = d.Name
	}
	add(name, d.Default, kmsg.ConfigSourceDefaultConfig)
	return chain
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

// brokerSettings are the settings in force, by Kafka's names.
func (s *Server) brokerSettings() map[string]string {
	m := map[string]string{
		"node.id":                                   strconv.Itoa(int(s.cluster.Self())),
		"broker.id":                                 strconv.Itoa(int(s.cluster.Self())),
		"socket.request.max.bytes":                  strconv.Itoa(s.cfg.MaxRequestBytes),
		"queued.max.request.bytes":                  strconv.FormatInt(s.cfg.QueuedMaxBytes, 10),
		"fetch.max.bytes":                           strconv.Itoa(s.cfg.FetchMaxBytes),
		"message.max.bytes":                         strconv.Itoa(s.cfg.MessageMaxBytes),
		"max.connections":                           strconv.Itoa(s.cfg.MaxConnections),
		"connections.max.idle.ms":                   strconv.FormatInt(s.cfg.MaxIdle.Milliseconds(), 10),
		"auto.create.topics.enable":                 strconv.FormatBool(s.cfg.AutoCreateTopics),
		"delete.topic.enable":                       strconv.FormatBool(s.cfg.DeleteTopics),
		"num.partitions":                            strconv.Itoa(int(s.cfg.NumPartitions)),
		"default.replication.factor":                strconv.Itoa(int(s.cfg.replicationFactor())),
		"shard.replicas":                            strconv.Itoa(int(s.cfg.ShardReplicas)),
		"log.dirs":                                  s.cfg.DataDir,
		"max.incremental.fetch.session.cache.slots": strconv.Itoa(s.cfg.FetchSessions),
	}
	maps.Copy(m, s.cfg.Static)
	return m
}

func (s *Server) describeBroker(names []string, synonyms bool) []configEntry {
	settings := s.brokerSettings()
	var out []configEntry
	for _, name := range slices.SortedFunc(maps.Keys(settings), strings.Compare) {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		value := settings[name]
		e := kmsg.NewDescribeConfigsResponseResourceConfig()
		e.Name, e.Value, e.ReadOnly, e.Source, e.ConfigType = name, &value, true, kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigTypeString
		if synonyms {
			c := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			c.Name, c.Value, c.Source = name, &value, kmsg.ConfigSourceStaticBrokerConfig
			e.ConfigSynonyms = append(e.ConfigSynonyms, c)
		}
		out = append(out, e)
	}
	return out
}
