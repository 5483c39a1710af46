// Package demo holds the demonstration on real input: demo.sh and the events
// it publishes (data/ATTRIBUTION.md says where they come from).
package demo
