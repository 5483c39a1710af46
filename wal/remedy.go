package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"
)

// remedy is what an operator can do about a failure that has taken the log out
// of service, as the end of its text; empty for what no operator can. A log that
// has failed is not tried again before a restart (Log.fail), which goes on from
// what the disk then holds.
func remedy(err error) string {
	var at *fs.PathError
	switch {
	case !errors.As(err, &at):
		return ""
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Sprintf("; free space on the volume of %s, then restart the broker", path.Dir(at.Path))
	}
	return fmt.Sprintf("; check the disk of %s, then restart the broker", path.Dir(at.Path))
}
