package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordSink writes records to the output and counts them.
type recordSink struct {
	out      *bufio.Writer
	write    func(*bufio.Writer, *kgo.Record) error
	limit    int64 // 0: none
	n, bytes int64
	start    time.Time
}

func newRecordSink(out io.Writer, format string, limit int64) (*recordSink, error) {
	write, err := recordWriter(format)
	if err != nil {
		return nil, err
	}
	// A reader that has enough (| head) closes its end: that is an error of
	// the write, which ends the command in good order, and not a signal.
	signal.Ignore(syscall.SIGPIPE)
	return &recordSink{out: bufio.NewWriterSize(out, 256<<10), write: write, limit: limit, start: time.Now()}, nil
}

func (s *recordSink) put(r *kgo.Record) error {
	if err := s.write(s.out, r); err != nil {
		return err
	}
	s.n++
	s.bytes += int64(len(r.Key) + len(r.Value))
	return nil
}

func (s *recordSink) full() bool { return s.limit > 0 && s.n >= s.limit }

func (s *recordSink) flush() error { return s.out.Flush() }

func (s *recordSink) summary() string {
	secs := max(time.Since(s.start).Seconds(), 1e-9)
	return fmt.Sprintf("read %d records, %.1f MB, %.1f MB/s", s.n, float64(s.bytes)/1e6, float64(s.bytes)/1e6/secs)
}

// readerWentAway takes the end of the output's reader for a good end.
func readerWentAway(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// recordWriter turns --format into a function that writes one record.
func recordWriter(format string) (func(*bufio.Writer, *kgo.Record) error, error) {
	switch format {
	case "value":
		format = `%v\n`
	case "key-value":
		format = `%k\t%v\n`
	case "json":
		return writeJSON, nil
	}
	if !strings.Contains(format, "%") {
		return nil, fmt.Errorf("--format is value, key-value, json or a pattern with %%v and the like, not %q", format)
	}
	return patternWriter(format)
}

func patternWriter(pattern string) (func(*bufio.Writer, *kgo.Record) error, error) {
	var steps []func(*bufio.Writer, *kgo.Record)
	literal := func(s string) {
		steps = append(steps, func(w *bufio.Writer, _ *kgo.Record) { w.WriteString(s) })
	}
	fields := map[byte]func(*bufio.Writer, *kgo.Record){
		't': func(w *bufio.Writer, r *kgo.Record) { w.WriteString(r.Topic) },
		'p': func(w *bufio.Writer, r *kgo.Record) { fmt.Fprint(w, r.Partition) },
		'o': func(w *bufio.Writer, r *kgo.Record) { fmt.Fprint(w, r.Offset) },
		'k': func(w *bufio.Writer, r *kgo.Record) { w.Write(r.Key) },
		'v': func(w *bufio.Writer, r *kgo.Record) { w.Write(r.Value) },
		'T': func(w *bufio.Writer, r *kgo.Record) { fmt.Fprint(w, r.Timestamp.UnixMilli()) },
		'h': writeHeaders,
		'%': func(w *bufio.Writer, _ *kgo.Record) { w.WriteByte('%') },
	}
	for i := 0; i < len(pattern); i++ {
		switch {
		case pattern[i] == '%' && i+1 < len(pattern):
			i++
			step, ok := fields[pattern[i]]
			if !ok {
				return nil, fmt.Errorf("--format: %%%c is not one of %%t %%p %%o %%k %%v %%T %%h %%%%", pattern[i])
			}
			steps = append(steps, step)
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			literal(map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '0': "\x00", '\\': "\\"}[pattern[i]])
		default:
			literal(pattern[i : i+1])
		}
	}
	return func(w *bufio.Writer, r *kgo.Record) error {
		for _, s := range steps {
			s(w, r)
		}
		return nil // a bufio.Writer keeps its first error for Flush
	}, nil
}

func writeHeaders(w *bufio.Writer, r *kgo.Record) {
	for i, h := range r.Headers {
		if i > 0 {
			w.WriteByte(',')
		}
		fmt.Fprintf(w, "%s=%s", h.Key, h.Value)
	}
}

// jsonRecord is one line of --format json. Text that is not UTF-8 is given in
// base64 instead, under the name with _base64.
type jsonRecord struct {
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Timestamp string            `json:"timestamp"`
	Key       *string           `json:"key"`
	KeyBase   []byte            `json:"key_base64,omitempty"`
	Value     *string           `json:"value"`
	ValueBase []byte            `json:"value_base64,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
}

func writeJSON(w *bufio.Writer, r *kgo.Record) error {
	j := jsonRecord{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z")}
	j.Key, j.KeyBase = jsonText(r.Key)
	j.Value, j.ValueBase = jsonText(r.Value)
	if len(r.Headers) > 0 {
		j.Headers = map[string]string{}
		for _, h := range r.Headers {
			j.Headers[h.Key] = string(h.Value)
		}
	}
	enc := json.NewEncoder(io.Writer(w))
	enc.SetEscapeHTML(false)
	return enc.Encode(j)
}

func jsonText(b []byte) (*string, []byte) {
	if b == nil {
		return nil, nil
	}
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}
