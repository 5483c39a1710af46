// Package loads puts many consumer groups, and groups of many members, on a
// cluster of three broker processes: a thousand of each. It is run by hand
// (make loads), since it takes minutes and measures; RESULTS.md has figures.
package loads
