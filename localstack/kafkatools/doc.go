// Package kafkatools runs the command-line tools of Apache Kafka (the classes
// behind kafka-topics.sh, kafka-configs.sh, kafka-consumer-groups.sh and the
// others) against three broker processes and checks what they print. The tools
// come from Maven Central; Java 17 and Maven are needed:
//
//	make kafka-tools
//
// RESULTS.md is the table that the last run wrote.
package kafkatools
