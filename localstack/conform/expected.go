package conform

import (
	"fmt"
	"os"
	"strings"
)

// Expected holds what is known not to pass, with the reason of each.
type Expected map[string]string

// LoadExpected reads lines of "client name reason"; # begins a comment.
func LoadExpected(path string) (Expected, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := Expected{}
	for i, l := range strings.Split(string(raw), "\n") {
		if l = strings.TrimSpace(l); l == "" || l[0] == '#' {
			continue
		}
		f := strings.SplitN(l, " ", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("conform: %s, line %d: expected client, scenario or test, and a reason, found %q", path, i+1, l)
		}
		out[f[0]+" "+f[1]] = f[2]
	}
	return out, nil
}

// Why is the reason why a client's scenario or test is known not to pass.
func (e Expected) Why(client, name string) (string, bool) {
	why, ok := e[client+" "+name]
	return why, ok
}
