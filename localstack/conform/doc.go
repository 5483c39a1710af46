// Package conform runs real Kafka clients against a cluster and tells what of
// them works: Java, librdkafka through kcat and Python, franz-go, sarama,
// kafka-go, KafkaJS and kafka-python, each through a small driver in its own
// language below clients/, and franz-go's own integration tests.
//
// The run itself is a test with the build tag conform, started by make
// conform: it installs what is missing (pinned versions, kept below
// ~/.cache/thermocline/conform), starts three brokers as processes, runs the
// drivers, kills and stops brokers when a driver asks for it, and writes
// RESULTS.md. scenarios.md says what each scenario does and how drivers talk
// to the runner; expected.txt lists what is known not to pass, and why.
package conform
