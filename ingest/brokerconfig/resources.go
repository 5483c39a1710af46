package brokerconfig

import (
	"fmt"
	"slices"

	"thermocline/ingest/topicconfig"
)

// groups are the configs of single groups; Broker names the setting of the
// brokers that gives the default.
var groups = []Def{
	inherits(integer("consumer.assignment.interval.ms", "1000", 0, "Least time between two assignments of the group's partitions."), "group.consumer.assignment.interval.ms"),
	inherits(integer("consumer.heartbeat.interval.ms", "5000", 1, "Heartbeat interval of the group's members."), "group.consumer.heartbeat.interval.ms"),
	inherits(integer("consumer.session.timeout.ms", "45000", 1, "Session timeout of the group's members."), "group.consumer.session.timeout.ms"),
}

// groupBounds are the settings of the brokers that bound the configs of groups.
var groupBounds = []struct{ name, least, most string }{
	{"consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"},
	{"consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
}

// clientMetrics are the configs of subscriptions to clients' metrics (KIP-714).
var clientMetrics = []Def{
	stored(integer("interval.ms", "300000", 0, "How often clients push."), whyMetrics),
	stored(list("match", "", "Which clients are meant."), whyMetrics),
	stored(list("metrics", "", "Prefixes of the metrics wanted."), whyMetrics),
}

const whyMetrics = "no receiver of clients' metrics is built, so that clients are not asked for them"

func inherits(d Def, setting string) Def { d.Broker = setting; return d }

// Groups returns the table of the configs of single groups. It is not to be changed.
func Groups() []Def { return groups }

// ClientMetrics returns the table of the configs of client metrics
// subscriptions. It is not to be changed.
func ClientMetrics() []Def { return clientMetrics }

// GroupInt is a group's value of one of Groups: its own, or that of the brokers.
func (v *Values) GroupInt(config map[string]string, name string) int64 {
	i := slices.IndexFunc(groups, func(d Def) bool { return d.Name == name })
	if i < 0 {
		return 0
	}
	if own, ok := config[name]; ok {
		return NewValues(map[string]string{groups[i].Broker: own}, nil, nil).Int(groups[i].Broker)
	}
	return v.Int(groups[i].Broker)
}

// GroupInForce is GroupInt as it holds for the group: what the group has of its
// own lies within the bounds that the brokers set now, which may not be those
// that it was accepted by (as Kafka's GroupConfig.evaluate has it). A setting of
// the brokers is taken as it is.
func (v *Values) GroupInForce(config map[string]string, name string) int64 {
	n := v.GroupInt(config, name)
	if _, own := config[name]; !own {
		return n
	}
	for _, b := range groupBounds {
		if b.name == name {
			return max(v.Int(b.least), min(v.Int(b.most), n))
		}
	}
	return n
}

// CheckGroup says whether a group's config may stand: values must lie within
// the bounds that the brokers set.
func CheckGroup(config map[string]string, v *Values) error {
	if err := checkTable("group", groups, config); err != nil {
		return err
	}
	for _, b := range groupBounds {
		if _, ok := config[b.name]; !ok {
			continue
		}
		if n := v.GroupInt(config, b.name); n < v.Int(b.least) || n > v.Int(b.most) {
			return fmt.Errorf("%w: %s is %d: write %d to %d (%s, %s)", topicconfig.ErrInvalid, b.name, n, v.Int(b.least), v.Int(b.most), b.least, b.most)
		}
	}
	if beat, session := v.GroupInt(config, "consumer.heartbeat.interval.ms"), v.GroupInt(config, "consumer.session.timeout.ms"); beat >= session {
		return fmt.Errorf("%w: consumer.heartbeat.interval.ms is %d: write less than consumer.session.timeout.ms (%d)", topicconfig.ErrInvalid, beat, session)
	}
	return nil
}

// CheckClientMetrics says whether a subscription's config may stand.
func CheckClientMetrics(config map[string]string) error {
	if err := checkTable("client metrics", clientMetrics, config); err != nil {
		return err
	}
	v := NewValues(config, nil, nil)
	if _, ok := config["interval.ms"]; ok && (v.Int("interval.ms") < 100 || v.Int("interval.ms") > 3_600_000) {
		return fmt.Errorf("%w: interval.ms is %s: write 100 to 3600000", topicconfig.ErrInvalid, config["interval.ms"])
	}
	return nil
}

func checkTable(what string, defs []Def, config map[string]string) error {
	for name, value := range config {
		i := slices.IndexFunc(defs, func(d Def) bool { return d.Name == name })
		if i < 0 {
			return fmt.Errorf("%w: unknown %s config name: %s", topicconfig.ErrInvalid, what, name)
		}
		if err := defs[i].Check(value); err != nil {
			return err
		}
	}
	return nil
}
