//go:build !linux

package transport

import (
	"net"
	"time"
)

// setUserTimeout has no portable form; write deadlines and keep-alives must do.
func setUserTimeout(*net.TCPConn, time.Duration) {}
