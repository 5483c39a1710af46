//go:build unix

package etcd

import (
	"os"

	"golang.org/x/sys/unix"
)

// flock takes an exclusive lock that ends with the process, or fails at once.
func flock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
