package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/brokerconfig"
	"thermocline/ingest/topicconfig"
	"thermocline/metadata"
)

// alterTarget is a resource whose configs can be altered.
type alterTarget struct {
	// lookup finds a config in the resource's table.
	lookup func(name string) (*topicconfig.Def, bool)
	// inherited is the value of a config that the resource does not set.
	inherited func(d *topicconfig.Def) string
	// check says whether a whole config may stand.
	check func(config map[string]string) error
	// read returns what is set now; write replaces it, unless it has another
	// revision by then (metadata.ErrFenced).
	read  func(ctx context.Context) (config map[string]string, revision int64, err error)
	write func(ctx context.Context, revision int64, config map[string]string) error
}

// alter changes a resource's config, again if others do so at the same time.
func (s *Server) alter(ctx context.Context, t *alterTarget, validateOnly bool, change func(map[string]string) (map[string]string, error)) error {
	for range alterAttempts {
		now, revision, err := t.read(ctx)
		if err != nil {
			return err
		}
		config, err := change(now)
		if err == nil {
			err = checkValues(config)
		}
		if err == nil {
			err = t.check(config)
		}
		if err != nil || validateOnly || maps.Equal(config, now) {
			return err
		}
		err = t.write(ctx, revision, config)
		if !errors.Is(err, metadata.ErrFenced) {
			return err
		}
		if !awaitRevision(ctx, t, revision) {
			return err
		}
	}
	return metadata.ErrFenced
}

// checkValues bounds what a row must hold.
func checkValues(config map[string]string) error {
	for name, value := range config {
		if len(name) > maxConfigValue || len(value) > maxConfigValue {
			return refuse(kerr.InvalidRequest, fmt.Sprintf("name or value of %.64q is longer than %d bytes", name, maxConfigValue))
		}
	}
	return nil
}

// awaitRevision waits for the cached view to show another version.
func awaitRevision(ctx context.Context, t *alterTarget, revision int64) bool {
	tick := time.NewTicker(viewPoll)
	defer tick.Stop()
	for {
		if _, now, err := t.read(ctx); err != nil || now != revision {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

func (s *Server) alterTarget(kind kmsg.ConfigResourceType, name string) (*alterTarget, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return s.topicTarget(name)
	case kmsg.ConfigResourceTypeBroker:
		if name != "" {
			if err := s.isSelf(name); err != nil {
				return nil, err
			}
			name = s.selfName() // "01" is broker 1 too
		}
		return s.brokerTarget(name), nil
	case kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeClientMetrics:
		if name == "" {
			return nil, refuse(kerr.InvalidRequest, "groups and client metrics have no common default: write a name")
		}
		if kind == kmsg.ConfigResourceTypeGroupConfig {
			return s.dynamicTarget(metadata.GroupConfig, name, brokerconfig.Groups(), s.checkGroup), nil
		}
		return s.dynamicTarget(metadata.ClientMetricsConfig, name, brokerconfig.ClientMetrics(), checkClientMetrics), nil
	}
	return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("resource type %d is not known", kind))
}

func (s *Server) topicTarget(name string) (*alterTarget, error) {
	if name == "" {
		return nil, refuse(kerr.InvalidRequest, "topics have no common default here: write a name, or alter the brokers' default")
	}
	if err := metadata.CheckTopicName(name); err != nil {
		return nil, err
	}
	var id metadata.TopicID
	return &alterTarget{
		lookup:    topicconfig.Lookup,
		inherited: s.settings().TopicDefault,
		check:     func(config map[string]string) error { return topicconfig.Validate(config, s.configLimits()) },
		read: func(ctx context.Context) (map[string]string, int64, error) {
			row, err := s.cluster.FindTopic(ctx, name)
			if errors.Is(err, metadata.ErrNotFound) {
				err = refuse(kerr.UnknownTopicOrPartition, fmt.Sprintf("topic %q does not exist", name))
			}
			if err != nil {
				return nil, 0, err
			}
			id = row.ID
			return row.Config, row.Revision, nil
		},
		write: func(ctx context.Context, revision int64, config map[string]string) error {
			return s.cluster.AlterTopic(ctx, id, revision, config)
		},
	}, nil
}

func (s *Server) brokerTarget(name string) *alterTarget {
	t := s.dynamicTarget(metadata.BrokerConfig, name, nil, func(config map[string]string) error {
		err := brokerconfig.CheckDynamic(config)
		if err == nil {
			err = s.checkSizes(config)
		}
		if err != nil {
			return refuse(kerr.InvalidRequest, err.Error())
		}
		return nil
	})
	t.lookup = func(name string) (*topicconfig.Def, bool) {
		d, ok := brokerconfig.Lookup(name)
		if !ok {
			return nil, false
		}
		return &d.Def, true
	}
	t.inherited = func(d *topicconfig.Def) string { return s.settings().String(d.Name) }
	return t
}

// checkSizes applies the bounds between settings.
func (s *Server) checkSizes(config map[string]string) error {
	limits, topic := s.configLimits(), map[string]string{}
	for name, kafka := range map[string]string{"message.max.bytes": "max.message.bytes", "min.insync.replicas": "min.insync.replicas"} {
		if v, ok := config[name]; ok {
			topic[kafka] = v
		}
	}
	return topicconfig.Validate(topic, limits)
}

// dynamicTarget is a resource whose configs are a row of their own.
func (s *Server) dynamicTarget(kind metadata.ConfigKind, name string, defs []brokerconfig.Def, check func(map[string]string) error) *alterTarget {
	return &alterTarget{
		lookup: func(name string) (*topicconfig.Def, bool) {
			i := slices.IndexFunc(defs, func(d brokerconfig.Def) bool { return d.Name == name })
			if i < 0 {
				return nil, false
			}
			return &defs[i].Def, true
		},
		inherited: func(d *topicconfig.Def) string { return d.Default },
		check:     check,
		read: func(context.Context) (map[string]string, int64, error) {
			d := s.cluster.DynamicConfig(kind, name)
			return d.Config, d.Revision, nil
		},
		write: func(ctx context.Context, revision int64, config map[string]string) error {
			return s.cluster.AlterConfig(ctx, metadata.DynamicConfig{Kind: kind, Name: name, Config: config, Revision: revision})
		},
	}
}

func (s *Server) checkGroup(config map[string]string) error {
	return brokerconfig.CheckGroup(config, s.settings())
}

func checkClientMetrics(config map[string]string) error {
	if err := brokerconfig.CheckClientMetrics(config); err != nil {
		return refuse(kerr.InvalidRequest, err.Error())
	}
	return nil
}

// rootLogger is the one logger there is, under Kafka's name for it.
const rootLogger = "root"

// alterLogLevels sets the level of this broker's log until it ends.
func (s *Server) alterLogLevels(res *alterResource, validateOnly bool) error {
	if err := s.isSelf(res.ResourceName); err != nil {
		return err
	}
	level := s.cfg.LogLevel.Level()
	for _, op := range res.Configs {
		switch {
		case op.Op != kmsg.IncrementalAlterConfigOpSet && op.Op != kmsg.IncrementalAlterConfigOpDelete:
			return refuse(kerr.InvalidRequest, "log levels are no lists: they can be set and deleted only")
		case op.Name != rootLogger:
			return refuse(kerr.InvalidConfig, fmt.Sprintf("logger %s does not exist: there is one, %s", op.Name, rootLogger))
		case op.Op == kmsg.IncrementalAlterConfigOpDelete:
			return refuse(kerr.InvalidRequest, "the level of the root logger can be set, not removed")
		}
		var ok bool
		if level, ok = parseLogLevel(*op.Value); !ok {
			return refuse(kerr.InvalidConfig, fmt.Sprintf("log level is %q: write TRACE, DEBUG, INFO, WARN, ERROR or FATAL", *op.Value))
		}
	}
	if !validateOnly {
		s.cfg.LogLevel.Set(level)
	}
	return nil
}

func isList(d *topicconfig.Def) bool { return d.Type == topicconfig.List }

// changeList adds members to a list, or removes them.
func changeList(current, change string, add bool) string {
	list := topicconfig.Members(current)
	for _, m := range topicconfig.Members(change) {
		has := slices.Contains(list, m)
		if add && !has {
			list = append(list, m)
		}
		if !add && has {
			list = slices.DeleteFunc(list, func(x string) bool { return x == m })
		}
	}
	return strings.Join(list, ",")
}
