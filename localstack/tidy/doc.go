// Package tidy holds the rules that the whole tree must keep, as tests:
// import directions, formatting, forbidden calls, documented exports, sizes.
package tidy
