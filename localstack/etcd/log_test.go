package etcd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestListenersThatEndWithTheMemberAreNoWarning(t *testing.T) {
	var out bytes.Buffer
	log := newZap(slog.New(slog.NewTextHandler(&out, nil)))
	log.Error(listenerEnded)
	if out.Len() > 0 {
		t.Errorf("expected nothing, found %q", out.String())
	}
	log.Error("disk is full")
	if !strings.Contains(out.String(), "level=WARN") || !strings.Contains(out.String(), "disk is full") {
		t.Errorf("expected a warning, found %q", out.String())
	}
}
