package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thermocline/cmd/config"
)

// What is wrong with the object store ends a broker's start at once, also while
// its etcd member waits for the other two.
func TestWrongStoreEndsTheStart(t *testing.T) {
	denies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`<Error><Code>AccessDenied</Code><Message>no</Message></Error>`)) // the client is there
	}))
	defer denies.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	// The peers' addresses take connections and answer nothing.
	var mute []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		mute = append(mute, "http://"+l.Addr().String())
	}
	dir := startDir(t)
	port := devPorts(t)
	mine := fmt.Sprintf("http://127.0.0.1:%d", port)
	c, err := config.Load("", func(string) (string, bool) { return "", false }, map[string]string{
		"node.id": "1", "data.dir": dir, "cluster.brokers": "3",
		"store.url":            "s3://bucket/events?region=us-east-1&endpoint=" + denies.URL,
		"etcd.initial.cluster": "1=" + mine + ",2=" + mute[0] + ",3=" + mute[1],
		"etcd.listen.peer":     mine, "etcd.listen.client": fmt.Sprintf("http://127.0.0.1:%d", port+1),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := openParts(ctx, cancel, c, slog.New(slog.DiscardHandler))
	if cerr := p.close(); cerr != nil {
		t.Errorf("close: %v", cerr)
	}
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "writing is denied") {
		t.Errorf("expected the store's refusal, found %v", err)
	}
}

// startDir makes a directory for an etcd member whose start is given up. It
// stays: that start may go on for as long as the process, and etcd ends the whole
// process when its directory is taken away. Those of runs long ended are removed.
func startDir(t *testing.T) string {
	t.Helper()
	const name = "thermocline-start"
	old, err := filepath.Glob(filepath.Join(os.TempDir(), name+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range old {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > time.Hour {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	}
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
