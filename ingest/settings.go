package ingest

import (
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"

	"thermocline/ingest/brokerconfig"
	"thermocline/metadata"
)

// settingsCache keeps the settings in force until a dynamic config changes.
type settingsCache struct {
	file map[string]string // what the broker's file says, where that is not the default
	now  atomic.Pointer[settingsEntry]
}

type settingsEntry struct {
	version int64
	values  *brokerconfig.Values
}

// settings returns the broker settings in force. It costs two atomic loads
// while nothing changes.
func (s *Server) settings() *brokerconfig.Values { return s.settingsEntry().values }

func (s *Server) settingsEntry() *settingsEntry {
	version := s.cluster.ConfigVersion()
	if e := s.set.now.Load(); e != nil && e.version == version {
		return e
	}
	own := s.cluster.DynamicConfig(metadata.BrokerConfig, s.selfName())
	all := s.cluster.DynamicConfig(metadata.BrokerConfig, "")
	e := &settingsEntry{version: version, values: brokerconfig.NewValues(own.Config, all.Config, s.set.file)}
	s.set.now.Store(e)
	return e
}

// selfName is this broker's id, as it names config resources.
func (s *Server) selfName() string { return strconv.Itoa(int(s.cluster.Self())) }

// fileSettings are Kafka's settings as the config says, where that is not the
// default.
func (s *Server) fileSettings() map[string]string {
	c := &s.cfg
	m := map[string]string{
		"node.id":                                   s.selfName(),
		"broker.id":                                 s.selfName(),
		"socket.request.max.bytes":                  strconv.Itoa(c.MaxRequestBytes),
		"queued.max.request.bytes":                  strconv.FormatInt(c.QueuedMaxBytes, 10),
		"fetch.max.bytes":                           strconv.Itoa(c.FetchMaxBytes),
		"message.max.bytes":                         strconv.Itoa(c.MessageMaxBytes),
		"max.connections":                           strconv.Itoa(c.MaxConnections),
		"connections.max.idle.ms":                   strconv.FormatInt(c.MaxIdle.Milliseconds(), 10),
		"auto.create.topics.enable":                 strconv.FormatBool(c.AutoCreateTopics),
		"delete.topic.enable":                       strconv.FormatBool(c.DeleteTopics),
		"num.partitions":                            strconv.Itoa(int(c.NumPartitions)),
		"default.replication.factor":                strconv.Itoa(int(c.replicationFactor())),
		"log.dirs":                                  c.DataDir,
		"max.incremental.fetch.session.cache.slots": strconv.Itoa(c.FetchSessions),
	}
	if c.MaxConnectionsPerIP > 0 {
		m["max.connections.per.ip"] = strconv.Itoa(c.MaxConnectionsPerIP)
	}
	file := map[string]string{}
	for _, d := range brokerconfig.All() {
		value, ok := c.Static[d.Name]
		if v, derived := m[d.Name]; derived {
			value, ok = v, true
		}
		if ok && value != "" && value != d.Default {
			file[d.Name] = value
		}
	}
	return file
}

// connectionLimits are what accept allows: all, and from one address (0: no limit).
func (s *Server) connectionLimits() (all, perIP int) {
	v := s.settings()
	all, perIP = int(v.Int("max.connections")), int(v.Int("max.connections.per.ip"))
	if perIP == noConnectionLimit {
		perIP = 0
	}
	return all, perIP
}

// noConnectionLimit is what Kafka writes for "no limit".
const noConnectionLimit = 1<<31 - 1

// Kafka's names of log levels, and ours.
var logLevels = []struct {
	name  string
	level slog.Level
}{
	{"TRACE", slog.LevelDebug - 4}, {"DEBUG", slog.LevelDebug}, {"INFO", slog.LevelInfo},
	{"WARN", slog.LevelWarn}, {"ERROR", slog.LevelError}, {"FATAL", slog.LevelError + 4},
}

// logLevel names the level in force.
func (s *Server) logLevel() string {
	now := s.cfg.LogLevel.Level()
	name := logLevels[0].name
	for _, l := range logLevels {
		if l.level <= now {
			name = l.name
		}
	}
	return name
}

func parseLogLevel(name string) (slog.Level, bool) {
	for _, l := range logLevels {
		if strings.EqualFold(l.name, name) {
			return l.level, true
		}
	}
	return 0, false
}
