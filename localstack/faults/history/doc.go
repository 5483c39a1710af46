// Package history records what producers saw and checks it against what a
// cluster holds: the direct checker of the tests with real processes.
//
// Each value names its producer and its number there, so that every record in
// a log can be traced to the call that sent it. Offsets name the order, so no
// search is needed: the checker sorts and compares.
package history
