package format

import (
	"errors"
	"testing"
)

// A marker of version 1 is read for ever; a newer one and damage are refused.
func TestMarker(t *testing.T) {
	const golden = `{"v":1,"cluster":"AbCdEfGhIjKlMnOpQrStUw","id":"X"}` + "\n"
	want := Marker{Cluster: "AbCdEfGhIjKlMnOpQrStUw", ID: "X"}
	if got := string(want.Encode()); got != golden {
		t.Errorf("encoding: expected %q, found %q", golden, got)
	}
	if got, err := DecodeMarker([]byte(golden)); err != nil || got != want {
		t.Errorf("decoding: expected %+v, found %+v, %v", want, got, err)
	}
	if _, err := DecodeMarker([]byte(`{"v":2}`)); !errors.Is(err, ErrVersion) {
		t.Errorf("a newer version: expected ErrVersion, found %v", err)
	}
	for _, bad := range []string{"", "{", `{"v":0,"cluster":"a","id":"b"}`, `{"v":1,"id":"b"}`, `{"v":1,"cluster":"a"}`, golden + "x", golden[:30]} {
		if _, err := DecodeMarker([]byte(bad)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: expected ErrCorrupt, found %v", bad, err)
		}
	}
}
