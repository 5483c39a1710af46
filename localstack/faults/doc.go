// Package faults holds the tests that run real broker processes and hurt them:
// kill -9, SIGSTOP, rolling restarts, a store that fails in every way that
// stores fail, a data directory that is lost. They need Go and nothing else;
// what needs strace and kcat is in localstack/outside, which shares this
// package's tools.
package faults
