// Package bench measures a cluster of three broker processes on one machine,
// and beside it, in the same run, what the machine itself can do: syncs,
// loopback, ranged GETs, and the floor, three bare processes that only copy,
// sync and acknowledge. A figure without the machine's own beside it says little.
package bench
