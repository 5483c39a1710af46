// Package driver is what the conformance drivers written in Go share: the
// protocol between a driver and the runner, and the scenarios, written once
// against the interface Client that each client library implements.
//
// A driver is started with
//
//	--bootstrap A,B,C --scenario NAME[,NAME…] --topic-prefix P
//
// It prints one JSON object per line. The first names the client's version,
// each further one is a result or something that it asks of the runner, which
// answers with one line on the driver's standard input:
//
//	{"version":"v1.22.3"}
//	{"ask":"kill-leader","topic":"t","partition":0}   →   {"ok":true}
//	{"scenario":"codec-gzip","result":"pass","detail":"","seconds":0.41}
//
// Results are pass, fail and na (the client has no such thing; detail says
// what). An answer {"ok":false,"reason":…} makes the scenario na with that
// reason. The drivers in other languages follow the same protocol and the same
// scenarios; scenarios.md, two folders up, describes both.
package driver
