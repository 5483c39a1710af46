// Package outside holds the tests that need tools besides Go: strace, which
// delays and fails the syncs of brokers that serve, and kcat, another client.
// They are built with the tag outside and run by make check; a tool that is
// missing is a failure that says what to install.
package outside
