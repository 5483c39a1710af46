package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// maxLineBytes bounds one input line: larger than any record a broker accepts
// by default, small enough to hold.
const maxLineBytes = 64 << 20

// event is one record to publish, as read from the input.
type event struct {
	key, value []byte
	timestamp  time.Time // zero: now
}

// inputFormat tells how records are cut from the input and where their keys
// and timestamps are.
type inputFormat struct {
	kind           string // lines, json
	keySeparator   string
	keyField       string
	timestampField string
	timestampForm  string
	nullValue      string
	hasNull        bool
}

func (f inputFormat) check() error {
	switch f.kind {
	case "lines":
		if f.keyField != "" || f.timestampField != "" {
			return errors.New("--key-field and --timestamp-field need --input json")
		}
	case "json":
		if f.keySeparator != "" {
			return errors.New("--key-separator needs --input lines; use --key-field with json")
		}
	default:
		return fmt.Errorf("--input is lines or json, not %q", f.kind)
	}
	return nil
}

// read calls emit for each record of r. emit may keep the event's bytes.
func (f inputFormat) read(r io.Reader, emit func(event) error) error {
	if f.kind == "json" {
		return f.readJSON(r, emit)
	}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLineBytes)
	for n := 1; sc.Scan(); n++ {
		e := event{value: bytes.Clone(sc.Bytes())}
		if f.keySeparator != "" {
			k, v, ok := bytes.Cut(e.value, []byte(f.keySeparator))
			if !ok {
				return fmt.Errorf("line %d has no key separator %q", n, f.keySeparator)
			}
			e.key, e.value = k, v
		}
		if f.hasNull && string(e.value) == f.nullValue {
			e.value = nil
		}
		if err := emit(e); err != nil {
			return err
		}
	}
	if errors.Is(sc.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than %d bytes", maxLineBytes)
	}
	return sc.Err()
}

// readJSON takes objects one after the other (a line each, or not) or one
// array of them. A record's value is its object, byte for byte as written.
func (f inputFormat) readJSON(r io.Reader, emit func(event) error) error {
	br := bufio.NewReaderSize(r, 1<<20)
	first, err := firstByte(br)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(br)
	if first == '[' {
		if _, err := dec.Token(); err != nil {
			return fmt.Errorf("reading the JSON array: %w", err)
		}
	}
	for n := 1; ; n++ {
		if first == '[' && !dec.More() {
			return nil
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) && first != '[' {
			return nil
		} else if err != nil {
			return fmt.Errorf("record %d is not JSON: %w", n, err)
		}
		e, err := f.jsonEvent(raw)
		if err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		if err := emit(e); err != nil {
			return err
		}
	}
}

func firstByte(br *bufio.Reader) (byte, error) {
	for {
		b, err := br.ReadByte()
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if !bytes.ContainsRune([]byte(" \t\r\n"), rune(b)) {
			return b, br.UnreadByte()
		}
	}
}

func (f inputFormat) jsonEvent(raw json.RawMessage) (event, error) {
	e := event{value: raw}
	if f.keyField == "" && f.timestampField == "" {
		return e, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return e, fmt.Errorf("an object is needed for --key-field and --timestamp-field: %w", err)
	}
	if f.keyField != "" {
		k, ok := fields[f.keyField]
		if !ok {
			return e, fmt.Errorf("no field %q for the key", f.keyField)
		}
		if string(k) != "null" {
			e.key = []byte(unquoted(k))
		}
	}
	if f.timestampField != "" {
		v, ok := fields[f.timestampField]
		if !ok {
			return e, fmt.Errorf("no field %q for the timestamp", f.timestampField)
		}
		t, err := parseTime(unquoted(v), f.timestampForm)
		if err != nil && f.timestampForm == "" {
			err = fmt.Errorf("%w (or give --timestamp-format)", err)
		}
		if err != nil {
			return e, err
		}
		e.timestamp = t
	}
	return e, nil
}

func unquoted(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// timeForms are the notations that parseTime tries; those without a zone are UTC.
var timeForms = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006/01/02 15:04:05",
	"2006-01-02T15:04", "2006-01-02 15:04", "2006/01/02 15:04", "2006-01-02", "2006/01/02",
}

// parseTime reads a date, or a number of milliseconds (seconds if small)
// since 1970. form, if given, is one of Go's layouts.
func parseTime(s, form string) (time.Time, error) {
	if form != "" {
		t, err := time.Parse(form, s)
		if err != nil {
			return t, fmt.Errorf("timestamp %q is not in the form %q", s, form)
		}
		return t, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 1e11 { // seconds until the year 5138
			return time.Unix(n, 0).UTC(), nil
		}
		return time.UnixMilli(n).UTC(), nil
	}
	for _, form := range timeForms {
		if t, err := time.Parse(form, strings.TrimSpace(s)); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("timestamp %q: write 2001-02-03, 2001-02-03 04:05:06, RFC 3339 or milliseconds since 1970", s)
}
