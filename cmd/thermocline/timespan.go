package main

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// isoSpan is ISO 8601's duration without years and months, whose length
// depends on when they are.
var isoSpan = regexp.MustCompile(`^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)

// daysSpan is Go's notation with days before it.
var daysSpan = regexp.MustCompile(`^(\d+)d(.*)$`)

// maxSpan keeps every sum below what a Duration holds (292 years).
const maxSpan = 100 * 365 * 24 * time.Hour

// parseSpan reads a length of time: 36h, 90m, 7d, 1d12h, or P1DT12H, PT30M, P2W.
func parseSpan(s string) (time.Duration, error) {
	wrong := fmt.Errorf("write a length of time such as 36h, 7d, 1d12h or P1DT12H (weeks, days, hours, minutes, seconds; at most 100 years), not %q", s)
	var total float64
	if m := isoSpan.FindStringSubmatch(s); m != nil && s != "P" && s[len(s)-1] != 'T' {
		for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second} {
			if m[i+1] == "" {
				continue
			}
			n, err := strconv.ParseFloat(m[i+1], 64)
			if err != nil {
				return 0, wrong
			}
			total += n * float64(unit)
		}
	} else {
		rest := s
		if m := daysSpan.FindStringSubmatch(s); m != nil {
			n, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return 0, wrong
			}
			if total, rest = n*float64(24*time.Hour), m[2]; rest == "" {
				rest = "0s"
			}
		}
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 {
			return 0, wrong
		}
		total += float64(d)
	}
	if total > float64(maxSpan) {
		return 0, wrong
	}
	return time.Duration(total), nil
}
