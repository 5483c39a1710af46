package driver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// scenarioTimeout bounds one scenario inside the driver; the runner has a
// longer one for drivers that hang.
const scenarioTimeout = 2 * time.Minute

// NotApplicable is the error of a scenario that the client cannot take part
// in, with the reason.
type NotApplicable string

// Error gives the reason.
func (n NotApplicable) Error() string { return string(n) }

// env is what a scenario works with.
type env struct {
	Client
	prefix string
	ask    func(question) error
	// details are said beside a pass: parts that the client has no means for.
	details []string
}

func (e *env) topic(name string) string { return e.prefix + "-" + name }

// note adds a remark to a result that passes.
func (e *env) note(format string, args ...any) {
	e.details = append(e.details, fmt.Sprintf(format, args...))
}

type question struct {
	Ask       string `json:"ask"`
	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition"`
	Group     string `json:"group,omitempty"`
}

type answer struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason"`
}

type result struct {
	Scenario string  `json:"scenario"`
	Result   string  `json:"result"`
	Detail   string  `json:"detail"`
	Seconds  float64 `json:"seconds"`
}

// Main runs the scenarios that the command line names. It panics when one
// failed, so that the process ends with a status other than 0.
func Main(c Connector) {
	bootstrap := flag.String("bootstrap", "", "addresses of brokers, separated by commas")
	names := flag.String("scenario", "", "scenarios, separated by commas")
	prefix := flag.String("topic-prefix", "conform", "start of the names of topics and groups")
	flag.Parse()
	out := json.NewEncoder(os.Stdout)
	in := bufio.NewReader(os.Stdin)
	client, err := c(strings.Split(*bootstrap, ","))
	if err != nil {
		panic(err)
	}
	write(out, map[string]string{"version": client.Version()})
	failed := 0
	for _, name := range strings.Split(*names, ",") {
		e := &env{Client: client, prefix: *prefix, ask: func(q question) error { return ask(out, in, q) }}
		r := run(e, name)
		if r.Result == "fail" {
			failed++
		}
		write(out, r)
	}
	if failed > 0 {
		panic(fmt.Sprintf("%d scenarios failed", failed))
	}
}

func write(out *json.Encoder, v any) {
	if err := out.Encode(v); err != nil {
		panic(err) // nobody listens any more
	}
}

func run(e *env, name string) result {
	start := time.Now()
	r := result{Scenario: name, Result: "pass"}
	err := fmt.Errorf("unknown scenario %q", name)
	if f := scenarios[name]; f != nil {
		ctx, cancel := context.WithTimeout(context.Background(), scenarioTimeout)
		err = f(ctx, e)
		cancel()
	}
	var na NotApplicable
	switch {
	case errors.As(err, &na):
		r.Result, r.Detail = "na", na.Error()
	case err != nil:
		r.Result, r.Detail = "fail", err.Error()
	default:
		r.Detail = strings.Join(e.details, "; ")
	}
	r.Seconds = time.Since(start).Seconds()
	return r
}

func ask(out *json.Encoder, in *bufio.Reader, q question) error {
	write(out, q)
	line, err := in.ReadBytes('\n')
	if err == io.EOF {
		return NotApplicable("nobody answers: run this scenario through make conform")
	}
	if err != nil {
		return err
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return err
	}
	if !a.OK {
		return NotApplicable(a.Reason)
	}
	return nil
}
