package faults

import (
	"context"

	"thermocline/localstack/processes"
)

// Build builds the thermocline binary into dir and returns its path.
func Build(dir string) (string, error) { return processes.Build(dir) }

// CLI runs one thermocline command and returns what it printed.
func CLI(ctx context.Context, binary string, args ...string) (string, error) {
	return processes.Command(ctx, binary, args...)
}
