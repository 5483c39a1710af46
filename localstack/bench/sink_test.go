package bench

import (
	"testing"
	"time"
)

func TestSinkAnswersAProducer(t *testing.T) {
	s, err := NewSink("t", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := Produce(t.Context(), []string{s.Addr()}, Load{Topic: "t", RecordBytes: 100, Duration: 100 * time.Millisecond}, nil)
	if err != nil || p.Records == 0 || len(p.Delays) == 0 {
		t.Fatalf("got %d records, %d delays, %v", p.Records, len(p.Delays), err)
	}
}
