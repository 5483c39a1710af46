package conform

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// KgoTest is one test of franz-go that did not pass.
type KgoTest struct {
	Name   string `json:"name"`
	Result string `json:"result"` // fail or skip
	Detail string `json:"detail"`
}

// KgoOutcome is what franz-go's integration tests came to.
type KgoOutcome struct {
	Version string    `json:"version"`
	Passed  int       `json:"passed"`
	Others  []KgoTest `json:"others"`
}

// kgoRecords is how many records the big tests move.
const kgoRecords = "5000"

// RunKgoTests copies franz-go from the module cache, and runs the tests of
// package kgo against the cluster. log receives everything that they print.
func RunKgoTests(ctx context.Context, cache string, bootstrap []string, skip string, log io.Writer) (KgoOutcome, error) {
	dir, version, err := kgoSource(ctx, cache)
	if err != nil {
		return KgoOutcome{}, err
	}
	args := []string{"test", "-json", "-count=1", "-timeout=15m"}
	if skip != "" {
		args = append(args, "-skip", skip)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = filepath.Join(dir, "pkg", "kgo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "KGO_SEEDS="+strings.Join(bootstrap, ","), "KGO_TEST_RF=3",
		"KGO_TEST_RECORDS="+kgoRecords, "GOFLAGS=-mod=mod")
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return KgoOutcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return KgoOutcome{}, err
	}
	outcome, err := parseTests(io.TeeReader(out, log))
	outcome.Version = version
	ended := cmd.Wait() // a failed test is in the outcome
	if err == nil && ended != nil && outcome.failed() == 0 {
		err = fmt.Errorf("franz-go's tests ended without a failed test: %w", ended)
	}
	return outcome, err
}

func (o KgoOutcome) failed() int {
	n := 0
	for _, t := range o.Others {
		if t.Result == Fail {
			n++
		}
	}
	return n
}

// kgoSource is a writable copy of the module at the version of our go.mod.
func kgoSource(ctx context.Context, cache string) (dir, version string, err error) {
	var m struct{ Dir, Version string }
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-json", kgoModule).Output()
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err != nil || m.Dir == "" {
		return "", "", fmt.Errorf("conform: where is %s (run go mod download): %w", kgoModule, err)
	}
	in := installer{ctx: ctx, cache: cache}
	dir, err = in.once("franz-go", m.Version, func(dir string) error {
		if err := os.CopyFS(dir, os.DirFS(m.Dir)); err != nil {
			return err
		}
		return in.run(dir, nil, "chmod", "-R", "u+w", dir)
	})
	return dir, m.Version, err
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
}

// outputKept is how much of a failed test's output is looked at.
const outputKept = 64 << 10

// parseTests counts top-level tests; a failed subtest's output is its test's.
func parseTests(r io.Reader) (KgoOutcome, error) {
	var o KgoOutcome
	output := map[string]*bytes.Buffer{}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			continue // build output
		}
		name, sub, _ := strings.Cut(e.Test, "/")
		if name == "" {
			continue
		}
		if output[name] == nil {
			output[name] = &bytes.Buffer{}
		}
		switch e.Action {
		case "output":
			if b := output[name]; b.Len() < outputKept {
				b.WriteString(e.Output)
			}
		case "pass":
			if sub == "" {
				o.Passed++
			}
		case "fail", "skip":
			if sub == "" {
				o.Others = append(o.Others, KgoTest{Name: name, Result: e.Action, Detail: reason(output[name].String())})
			}
		}
	}
	slices.SortFunc(o.Others, func(a, b KgoTest) int { return strings.Compare(a.Name, b.Name) })
	return o, in.Err()
}

// reason is the first line that a test said of itself, after its file name.
func reason(output string) string {
	for _, l := range strings.Split(output, "\n") {
		if _, text, ok := strings.Cut(l, "_test.go:"); ok {
			return oneLine(text)
		}
	}
	return oneLine(output)
}

// Markdown lists the counts and what did not pass.
func (o KgoOutcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Package kgo of %s %s: %d passed, %d failed, %d skipped.\n", kgoModule, o.Version, o.Passed, o.failed(), len(o.Others)-o.failed())
	if len(o.Others) > 0 {
		b.WriteString("\n| test | result | what it said |\n|--|--|--|\n")
	}
	for _, t := range o.Others {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", t.Name, t.Result, strings.ReplaceAll(t.Detail, "|", "\\|"))
	}
	return b.String()
}
