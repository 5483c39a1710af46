package memory_test

import (
	"bytes"
	"errors"
	"testing"

	"thermocline/tiering/object"
	"thermocline/tiering/object/memory"
	"thermocline/tiering/object/objecttest"
)

func TestAcceptance(t *testing.T) {
	objecttest.Acceptance(t, func(*testing.T) object.Store { return memory.New(memory.Options{}) }, objecttest.Options{})
}

func TestDiscardKeepsSizesAndEnds(t *testing.T) {
	s := memory.New(memory.Options{Discard: true, Keep: 100})
	body := objecttest.Random(1, 1000)
	objecttest.Put(t, s, "segment", body)
	objecttest.Put(t, s, "small", body[:100])
	info, err := s.Head(t.Context(), "segment")
	if err != nil || info.Size != 1000 || info.CRC32C != object.CRC32C(body) {
		t.Errorf("head: expected 1000 bytes and their checksum, got %+v, %v", info, err)
	}
	p := make([]byte, 200)
	if n, err := s.GetRange(t.Context(), "segment", 900, p); err != nil || !bytes.Equal(p[:n], body[900:]) {
		t.Errorf("the kept end: got %d bytes, %v", n, err)
	}
	if _, err := s.GetRange(t.Context(), "segment", 899, p); !errors.Is(err, object.ErrRefused) {
		t.Errorf("what is gone: expected a refusal, got %v", err)
	}
	if !bytes.Equal(objecttest.Get(t, s, "small"), body[:100]) {
		t.Error("a small object was not kept whole")
	}
	if got := s.Bytes(); got != 1100 {
		t.Errorf("bytes: expected 1100, got %d", got)
	}
}

func TestCorruptKeepsTheChecksumOfTheOldBytes(t *testing.T) {
	s := memory.New(memory.Options{})
	body := []byte("some bytes")
	objecttest.Put(t, s, "x", body)
	if !s.Corrupt("x", 3) || s.Corrupt("x", 10) || s.Corrupt("y", 0) {
		t.Error("Corrupt does not report truly whether the byte is there")
	}
	info, err := s.Head(t.Context(), "x")
	if err != nil || object.CRC32C(objecttest.Get(t, s, "x")) == info.CRC32C {
		t.Errorf("a changed byte is not seen: %+v, %v", info, err)
	}
}

func TestSharedIsOneStore(t *testing.T) {
	a, b := memory.Shared(t.Name(), memory.Options{}), memory.Shared(t.Name(), memory.Options{})
	objecttest.Put(t, a, "x", []byte("x"))
	if string(objecttest.Get(t, b, "x")) != "x" || memory.Shared(t.Name()+"2", memory.Options{}) == a {
		t.Error("stores of one name must be one, of two names two")
	}
}
