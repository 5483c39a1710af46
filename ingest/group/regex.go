package group

import (
	"regexp"
	"slices"
)

// expression is a regular expression that members subscribe by (KIP-848). Its
// syntax is RE2's, as in Kafka, and it must match the whole of a topic's name.
type expression struct {
	text          string
	compiled      *regexp.Regexp
	names         []string // of the topics that match, sorted
	scanned       bool     // names is known
	subscriptions int
}

// regexMax bounds the length of an expression in bytes; RE2 programs grow with it.
const regexMax = 4096

// regexRescan is the least time in ms between two matches of all topics with a
// group's expressions: a burst of new topics costs a group one match, not one
// each. Kafka waits 10 s.
const regexRescan = 1000

// compileRegex compiles an expression, or tells what is wrong with it.
func compileRegex(text string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(text); err != nil {
		return nil, err // tells of the expression as it was given
	}
	return regexp.Compile(`\A(?:` + text + `)\z`)
}

// express finds or makes an expression. One that is new matches nothing until scan.
func (g *consumerGroup) express(text string) *expression {
	e := g.expressions[text]
	if e == nil {
		compiled, err := compileRegex(text)
		if err != nil {
			panic("group: an expression that was not checked: " + err.Error())
		}
		e = &expression{text: text, compiled: compiled}
		g.expressions[text] = e
	}
	return e
}

func (e *expression) has(topic string) bool {
	_, ok := slices.BinarySearch(e.names, topic)
	return ok
}

// scan matches all topics' names.
func (e *expression) scan(names []string) {
	e.names, e.scanned = nil, true
	for _, n := range names {
		if e.compiled.MatchString(n) {
			e.names = append(e.names, n)
		}
	}
	slices.Sort(e.names)
}

// scanNew matches the expressions that have not been yet.
func (g *consumerGroup) scanNew(t Topics) {
	for _, e := range g.expressions {
		if !e.scanned {
			e.scan(t.Names())
		}
	}
}

// rescan matches all expressions with all topics.
func (g *consumerGroup) rescan(now int64, t Topics) {
	g.scannedAt = now
	if len(g.expressions) == 0 {
		return
	}
	names := t.Names()
	for _, e := range g.expressions {
		e.scan(names)
	}
	for _, s := range g.subs {
		s.resolved = s.resolved && s.regex == nil
	}
}
