package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BinaryEnv names a binary to test instead of one built from this tree.
const BinaryEnv = "THERMOCLINE_BINARY"

// Build builds the thermocline binary into dir and returns its path.
func Build(dir string) (string, error) {
	if b := os.Getenv(BinaryEnv); b != "" {
		return b, nil
	}
	binary := filepath.Join(dir, "thermocline")
	cmd := exec.Command("go", "build", "-o", binary, "thermocline/cmd/thermocline")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("processes: building thermocline: %w\n%s", err, out)
	}
	return binary, nil
}

// Main is what TestMain of a package that tests processes returns: it finds
// the tools, builds the binary once, into *binary, and runs the tests. A tool
// that is missing fails them, and install says how to get it.
func Main(tests interface{ Run() int }, binary *string, install string, tools ...string) int {
	dir, err := os.MkdirTemp("", "thermocline-test")
	if err == nil {
		defer os.RemoveAll(dir)
		err = lookUp(install, tools)
	}
	if err == nil {
		*binary, err = Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests.Run()
}

func lookUp(install string, tools []string) error {
	var errs []error
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: install it (%s): %w", tool, install, err))
		}
	}
	return errors.Join(errs...)
}

// Command runs one thermocline command and returns what it printed.
func Command(ctx context.Context, binary string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("processes: thermocline %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}

// logLines is how much of each log LogEnds gives.
const logLines = 25

// LogEnds gives the end of each process's log below dir, for a test that fails.
func LogEnds(dir string) []string {
	var out []string
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is right
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
		end := bytes.Join(lines[max(0, len(lines)-logLines):], []byte("\n"))
		out = append(out, fmt.Sprintf("%s:\n%s", filepath.Base(path), end))
	}
	return out
}
