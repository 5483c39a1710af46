package main

import (
	"net"
	"strings"
	"testing"
)

func TestS3OnATakenPortIsRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := cli(t, "", "s3", "--dir", t.TempDir(), "--listen", l.Addr().String())
	if err == nil || out != "" || strings.Count(err.Error(), "in use") != 1 {
		t.Fatalf("expected a refusal, found %v and %q", err, out)
	}
}
