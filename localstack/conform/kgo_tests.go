package conform

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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

// notRun begins the reason of a test that is left out, since it would wait for
// what is not there until its time is up.
const notRun = "not run: "

// RunKgoTests copies franz-go from the module cache, and runs those tests of
// package kgo that use the cluster. log receives everything that they print.
func RunKgoTests(ctx context.Context, cache string, bootstrap []string, expected Expected, log io.Writer) (KgoOutcome, error) {
	dir, version, err := kgoSource(ctx, cache)
	if err != nil {
		return KgoOutcome{}, err
	}
	dir = filepath.Join(dir, "pkg", "kgo")
	names, err := clusterTests(dir)
	if err != nil {
		return KgoOutcome{}, err
	}
	var left []KgoTest
	names = slices.DeleteFunc(names, func(name string) bool {
		why, _ := expected.Why(kgoTestsName, name)
		if !strings.HasPrefix(why, notRun) {
			return false
		}
		left = append(left, KgoTest{Name: name, Result: "skip", Detail: why})
		return true
	})
	outcome, err := goTest(ctx, dir, names, bootstrap, log)
	outcome.Version = version
	outcome.Others = append(outcome.Others, left...)
	slices.SortFunc(outcome.Others, func(a, b KgoTest) int { return strings.Compare(a.Name, b.Name) })
	return outcome, err
}

func goTest(ctx context.Context, dir string, names, bootstrap []string, log io.Writer) (KgoOutcome, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout=15m", "-run", "^("+strings.Join(names, "|")+")$", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "KGO_SEEDS="+strings.Join(bootstrap, ","), fmt.Sprintf("KGO_TEST_RF=%d", min(3, len(bootstrap))),
		"KGO_TEST_RECORDS="+kgoRecords, "KGO_LOG_LEVEL=none")
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return KgoOutcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return KgoOutcome{}, err
	}
	outcome, err := parseTests(io.TeeReader(out, log))
	ended := cmd.Wait() // a failed test is in the outcome
	if err == nil && ended != nil && outcome.failed() == 0 {
		err = fmt.Errorf("franz-go's tests ended without a failed test: %w", ended)
	}
	return outcome, err
}

// clusterTests names the tests that make a client of the cluster; the others
// need none, and say nothing of it.
func clusterTests(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && makesClient(f) {
				out = append(out, f.Name.Name)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("conform: no test in %s calls newTestClient: its tests find the cluster in another way now", dir)
	}
	return out, nil
}

func makesClient(f *ast.FuncDecl) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == "newTestClient"
		return !found
	})
	return found
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
