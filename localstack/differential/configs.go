package differential

import "github.com/twmb/franz-go/pkg/kmsg"

func (g *generator) describeConfigs() kmsg.Request {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = g.one(2), g.one(2)
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = g.resource()
	switch {
	case r.ResourceType == kmsg.ConfigResourceTypeBroker:
		r.ConfigNames = []string{"log.retention.hours", "log.roll.ms", "num.partitions", "group.max.size"}
	case r.ResourceType == kmsg.ConfigResourceTypeGroupConfig:
		r.ConfigNames = []string{"consumer.session.timeout.ms"}
	case g.one(3):
		r.ConfigNames = []string{"retention.ms", "no.such.config"}
	}
	req.Resources = append(req.Resources, r)
	return req
}

func (g *generator) alterConfigs() kmsg.Request {
	req := kmsg.NewPtrAlterConfigsRequest()
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = g.resource()
	req.ValidateOnly = g.one(4) || r.ResourceType == kmsg.ConfigResourceTypeBroker
	if r.ResourceType == kmsg.ConfigResourceTypeBroker && r.ResourceName == "" {
		r.ResourceName = "1" // Kafka does not let all brokers' min.insync.replicas go
	}
	for range g.rng.IntN(3) {
		name, value := g.configOf(r.ResourceType)
		c := kmsg.AlterConfigsRequestResourceConfig{Name: name, Value: &value}
		if g.one(8) {
			c.Value = nil
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	return req
}

func (g *generator) incrementalAlterConfigs() kmsg.Request {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = g.resource()
	req.ValidateOnly = g.one(4) || r.ResourceType == kmsg.ConfigResourceTypeBroker
	for range g.rng.IntN(3) {
		name, value := g.configOf(r.ResourceType)
		c := kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Value: &value, Op: kmsg.IncrementalAlterConfigOp(pick(g, 0, 0, 0, 1, 2, 3, 9))}
		if c.Op == kmsg.IncrementalAlterConfigOpDelete || g.one(8) {
			c.Value = nil
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	return req
}
