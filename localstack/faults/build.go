package faults

import (
	"context"
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
		return "", fmt.Errorf("faults: building thermocline: %w\n%s", err, out)
	}
	return binary, nil
}

// CLI runs one thermocline command and returns what it printed.
func CLI(ctx context.Context, binary string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("faults: thermocline %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}
