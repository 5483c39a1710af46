package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is the kernel's USER_HZ, 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// CPUSeconds is the processor time that the processes have used.
func CPUSeconds(pids ...int) (float64, error) {
	total := 0.0
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		// The command's name, in parentheses, may hold spaces: count after it.
		text := string(raw)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		for _, f := range fields[11:13] { // utime, stime
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("bench: /proc/%d/stat: %w", pid, err)
			}
			total += float64(n) / ticksPerSecond
		}
	}
	return total, nil
}

// ResidentBytes is the memory that a process holds.
func ResidentBytes(pid int) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(raw))
	n, err := strconv.ParseInt(fields[1], 10, 64)
	return n * int64(os.Getpagesize()), err
}
