package bench

// Rows that more than one place names.
const (
	rowProduce    = "produce 1 KiB, acks=all"
	rowProduceCPU = "produce 1 KiB, broker CPU"
	rowOff        = "produce 1 KiB, tiering off"
	rowOffCPU     = "produce 1 KiB, tiering off, broker CPU"
	rowHot        = "consume hot, one client"
	rowCold       = "consume cold, from the bucket, one client"
	rowFranz      = "produce 100 B, franz-go"
	rowPrebuilt   = "produce 100 B, prebuilt 16 KiB batches"
	rowAck82      = "ack p99 at 82 MB/s of 1 KiB"
	rowPoll       = "produce to poll p99 at 2,000/s"
	rowKeyed      = "produce 1 KiB keyed over 1,000 partitions"
	rowReplay     = "cold replay from a throttled store"
	rowReplayAck  = "ack p99 during four cold replays, times without"
	rowManyMemory = "many partitions exist: memory per broker"
	rowManyRate   = "many partitions exist: rate of 100, times 100 alone"
	rowState      = "rounds of one record per partition: growth of the state"
	rowLookupCold = "look-up by offset, index cold: GETs"
	rowLookupWarm = "look-up by offset, index warm: GETs"
	rowTimeCold   = "look-up by time, index cold: GETs"
	rowTimeWarm   = "look-up by time, index warm: GETs"
	rowLookupSize = "look-up by offset or time: bytes for one record"
	rowStart      = "start to first ack"
	rowIdle       = "memory of three idle brokers"
)

// against says what a figure is divided by before it is judged.
type against int

const (
	itself       against = iota
	kafka                // the better of Kafka's columns
	kafkaDefault         // Kafka without fsync
	machine              // what the machine itself does, in the same run
)

// goal is what a row must reach, and what is aimed at: the budget of the design.
type goal struct {
	of        against
	must, aim float64
}

// goals by row. Rows without one are for reading.
var goals = map[string]goal{
	rowOff:                        {kafka, 1, 2},
	rowOffCPU:                     {kafkaDefault, 0.5, 0.25},
	rowProduce:                    {kafka, 0.7, 1},
	rowProduceCPU:                 {kafkaDefault, 0.7, 0.4},
	rowHot:                        {kafka, 0.7, 1},
	rowFranz:                      {machine, 0.5, 0.7},
	rowPrebuilt:                   {itself, 1e6, 3e6},
	rowAck82:                      {itself, 10, 3},
	"ack p99 at 24 MB/s of 100 B": {itself, 10, 3},
	"ack p99 at 10 MB/s of 1 KiB": {itself, 10, 3},
	rowPoll:                       {itself, 10, 3},
	rowKeyed:                      {kafka, 5, 5},
	rowReplay:                     {machine, 0.7, 0.9},
	rowReplayAck:                  {itself, 1.5, 1.1},
	rowManyMemory:                 {itself, 2048, 1024},
	rowManyRate:                   {itself, 0.7, 0.9},
	rowState:                      {itself, 4, 1},
	rowLookupCold:                 {itself, 3, 2},
	rowLookupWarm:                 {itself, 0, 0},
	rowTimeCold:                   {itself, 3, 2},
	rowTimeWarm:                   {itself, 0, 0},
	rowLookupSize:                 {itself, 2048, 256},
	rowStart:                      {itself, 5, 2},
	rowIdle:                       {itself, 500, 200},
}

// Row is one line of the table.
type Row struct {
	Name string
	Unit string
	// Values by column; missing ones are shown as a dash.
	Values map[string]float64
	Higher bool // larger is better
}

// Columns, in order.
const (
	Ours       = "thermocline"
	KafkaPlain = "kafka"
	KafkaFsync = "kafka fsync"
	Floor      = "machine"
)

// judged is what the row's goal looks at, and whether there is all that it takes.
func (row *Row) judged(g goal) (v float64, ok bool) {
	ours, ok := row.Values[Ours]
	if !ok || g.of == itself {
		return ours, ok
	}
	columns := map[against][]string{kafka: {KafkaPlain, KafkaFsync}, kafkaDefault: {KafkaPlain}, machine: {Floor}}[g.of]
	best := 0.0
	for i, c := range columns {
		v, ok := row.Values[c]
		if !ok {
			return 0, false // a peer that did not start is not the worse one
		}
		if i == 0 || (v > best) == row.Higher {
			best = v
		}
	}
	return ours / best, best > 0
}

// verdict is "aim" or "must" when the row reaches them, "below" when it does not.
func (row *Row) verdict(g goal, v float64) string {
	reached := func(bound float64) bool { return v == bound || (v > bound) == row.Higher }
	switch {
	case reached(g.aim):
		return "aim"
	case reached(g.must):
		return "must"
	}
	return "below"
}
