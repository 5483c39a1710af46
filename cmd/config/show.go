package config

import (
	"fmt"
	"io"
	"strings"
)

// Show writes the settings in force as a YAML file with comments: what each
// means, and its default where it was changed. User information in URLs is left out.
func (c *Config) Show(w io.Writer) error {
	defaults := Defaults()
	for _, s := range Settings() {
		value := c.Get(s.Key)
		if s.Key == "store.url" {
			value = redactURL(value)
		}
		for _, line := range wrap(s.Doc, 96) {
			if _, err := fmt.Fprintf(w, "# %s\n", line); err != nil {
				return err
			}
		}
		if d := defaults.Get(s.Key); d != c.Get(s.Key) && s.Default != "" {
			if _, err := fmt.Fprintf(w, "# Default: %s\n", d); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n\n", s.Key, quote(value)); err != nil {
			return err
		}
	}
	return nil
}

func redactURL(u string) string {
	scheme, rest, ok := strings.Cut(u, "://")
	if i := strings.IndexByte(rest, '@'); ok && i >= 0 {
		return scheme + "://…@" + rest[i+1:]
	}
	return u
}

// quote protects what YAML would read otherwise.
func quote(v string) string {
	if v == "" || strings.ContainsAny(v, "#,{}[]&*!|>'\"%@`") || strings.Contains(v, ": ") {
		return fmt.Sprintf("%q", v)
	}
	return v
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
