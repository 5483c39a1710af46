package conform

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Results of a scenario.
const (
	Pass = "pass"
	Fail = "fail"
	NA   = "na"
)

// Result is what one scenario came to with one client.
type Result struct {
	Scenario string  `json:"scenario"`
	Result   string  `json:"result"`
	Detail   string  `json:"detail"`
	Seconds  float64 `json:"seconds,omitempty"`
}

// Driver runs the scenarios of one client.
type Driver struct {
	// Command starts the driver; the runner adds the flags.
	Command []string
	Env     []string
	// Log receives what the driver prints on its standard error.
	Log io.Writer
	// Bootstrap and Prefix go to the driver.
	Bootstrap []string
	Prefix    string
	// Limit bounds one scenario.
	Limit time.Duration
	// Asked carries out what a scenario asks for; an error makes the scenario
	// not applicable, with the error as reason.
	Asked func(context.Context, Ask) error
}

// Ask is a driver's question to the runner.
type Ask struct {
	Ask       string `json:"ask"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Group     string `json:"group"`
}

// line is any line that a driver prints.
type line struct {
	Version string `json:"version"`
	Ask
	Result
}

// Run runs scenarios in their order. A driver that hangs or ends early fails
// the scenario it was at, and is started again for those that remain.
func (d *Driver) Run(ctx context.Context, scenarios []string) (version string, results []Result) {
	for len(scenarios) > 0 {
		v, got, err := d.once(ctx, scenarios)
		if v != "" {
			version = v
		}
		results = append(results, got...)
		scenarios = scenarios[len(got):]
		if len(scenarios) == 0 {
			break
		}
		if err == nil {
			err = errors.New("the driver ended before it was done")
		}
		results = append(results, Result{Scenario: scenarios[0], Result: Fail, Detail: err.Error()})
		scenarios = scenarios[1:]
		if ctx.Err() != nil {
			for _, s := range scenarios {
				results = append(results, Result{Scenario: s, Result: Fail, Detail: "not run: " + context.Cause(ctx).Error()})
			}
			break
		}
	}
	return version, results
}

// process is a driver at work.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan []byte
	stderr tail
}

// once starts the driver and follows it until it has given all results, ends,
// or is too slow.
func (d *Driver) once(ctx context.Context, scenarios []string) (version string, results []Result, err error) {
	p, err := d.start(scenarios)
	if err != nil {
		return "", nil, err
	}
	defer func() {
		p.end()
		if err != nil {
			err = fmt.Errorf("%w%s", err, p.stderr.last())
		}
	}()
	limit := time.NewTimer(d.Limit)
	defer limit.Stop()
	for len(results) < len(scenarios) {
		select {
		case <-ctx.Done():
			return version, results, context.Cause(ctx)
		case <-limit.C:
			return version, results, fmt.Errorf("no result within %v", d.Limit)
		case text, ok := <-p.lines:
			if !ok {
				return version, results, errors.New("the driver ended early")
			}
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				return version, results, fmt.Errorf("the driver printed %.200q, which is not a line of the protocol: %w", text, err)
			}
			switch {
			case l.Version != "":
				version = l.Version
			case l.Ask.Ask != "":
				if err := p.answer(d.Asked(ctx, l.Ask)); err != nil {
					return version, results, err
				}
			case l.Scenario != scenarios[len(results)]:
				return version, results, fmt.Errorf("the driver gave a result for %q, not for %q", l.Scenario, scenarios[len(results)])
			default:
				results = append(results, l.Result)
				limit.Reset(d.Limit)
			}
		}
	}
	return version, results, nil
}

func (d *Driver) start(scenarios []string) (*process, error) {
	args := append(d.Command[1:len(d.Command):len(d.Command)], "--bootstrap", strings.Join(d.Bootstrap, ","),
		"--scenario", strings.Join(scenarios, ","), "--topic-prefix", d.Prefix)
	p := &process{cmd: exec.Command(d.Command[0], args...), lines: make(chan []byte, 16)}
	p.cmd.Env = append(os.Environ(), d.Env...)
	p.cmd.Stderr = io.MultiWriter(&p.stderr, d.Log)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.lines)
		in := bufio.NewScanner(out)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			p.lines <- bytes.Clone(in.Bytes())
		}
	}()
	return p, nil
}

func (p *process) answer(refused error) error {
	a := map[string]any{"ok": refused == nil}
	if refused != nil {
		a["reason"] = refused.Error()
	}
	return json.NewEncoder(p.in).Encode(a)
}

// endGrace is how long a driver may take to end after its last result.
const endGrace = 10 * time.Second

// end waits for the driver, or ends it, and its children with it.
func (p *process) end() {
	_ = p.in.Close() // it may have ended
	kill := time.AfterFunc(endGrace, p.kill)
	for range p.lines { // until it ends, so that it never waits for us
	}
	_ = p.cmd.Wait() // its results were read
	kill.Stop()
}

func (p *process) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// tail keeps the end of what is written to it.
type tail struct{ buf []byte }

const tailBytes = 2000

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.buf = append(t.buf, b...)
	t.buf = t.buf[max(0, len(t.buf)-tailBytes):]
	return len(b), nil
}

func (t *tail) last() string {
	text := strings.TrimSpace(string(t.buf))
	if text == "" {
		return ""
	}
	return "; it said: " + text[max(0, len(text)-400):]
}
