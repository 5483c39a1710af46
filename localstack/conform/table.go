package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Column is what one client gave.
type Column struct {
	Client  string   `json:"client"`
	Version string   `json:"version"`
	Results []Result `json:"results"`
}

// Record is what was seen last of each client, against one kind of cluster.
type Record struct {
	Columns []Column `json:"columns"`
	// KgoTests is the outcome of franz-go's integration tests.
	KgoTests *KgoOutcome `json:"kgo_tests,omitempty"`
}

// LoadRecord reads a record; one that does not exist is empty.
func LoadRecord(path string) (Record, error) {
	var r Record
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		return r, fmt.Errorf("conform: reading %s: %w", path, err)
	}
	return r, nil
}

// Save writes the record without the times, which differ in every run.
func (r Record) Save(path string) error {
	for i := range r.Columns {
		for j := range r.Columns[i].Results {
			r.Columns[i].Results[j].Seconds = 0
		}
	}
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}

// Put replaces a client's results of the scenarios that were run.
func (r *Record) Put(c Column) {
	i := slices.IndexFunc(r.Columns, func(have Column) bool { return have.Client == c.Client })
	if i < 0 {
		r.Columns = append(r.Columns, c)
	} else {
		old := &r.Columns[i]
		old.Version = c.Version
		for _, n := range c.Results {
			j := slices.IndexFunc(old.Results, func(o Result) bool { return o.Scenario == n.Scenario })
			if j < 0 {
				old.Results = append(old.Results, n)
			} else {
				old.Results[j] = n
			}
		}
	}
	names, order := Names(), Scenarios()
	slices.SortFunc(r.Columns, func(a, b Column) int { return slices.Index(names, a.Client) - slices.Index(names, b.Client) })
	for _, c := range r.Columns {
		slices.SortFunc(c.Results, func(a, b Result) int { return slices.Index(order, a.Scenario) - slices.Index(order, b.Scenario) })
	}
}

// find is a client's result of a scenario, if it was run.
func (r Record) find(client, scenario string) (Result, bool) {
	for _, c := range r.Columns {
		for _, res := range c.Results {
			if c.Client == client && res.Scenario == scenario {
				return res, true
			}
		}
	}
	return Result{}, false
}

// Markdown renders the table: what the clients gave here, and where Apache
// Kafka gave something else, that too. Notes below say why.
func Markdown(ours, oracle Record) string {
	var b, notes strings.Builder
	b.WriteString("# Clients by scenarios\n\nWritten by `make conform`; scenarios.md says what each scenario does. A cell is what the client gave\n" +
		"against Thermocline; where Apache Kafka " + java4Version + " gave something else, that follows in brackets.\n" +
		"n.a.: the client has no means for it. Numbers refer to the notes below.\n\n| scenario |")
	for _, c := range ours.Columns {
		fmt.Fprintf(&b, " %s |", c.Client)
	}
	b.WriteString("\n|--|" + strings.Repeat("--|", len(ours.Columns)) + "\n")
	n := 0
	for _, s := range Scenarios() {
		fmt.Fprintf(&b, "| %s |", s)
		for _, c := range ours.Columns {
			cell, why := cell(ours, oracle, c.Client, s)
			if why != "" {
				n++
				cell += fmt.Sprintf(" %d", n)
				fmt.Fprintf(&notes, "%d. %s, %s: %s\n", n, c.Client, s, why)
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	b.WriteString("\nVersions:")
	for i, c := range ours.Columns {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %s is %s", c.Client, c.Version)
	}
	b.WriteString(".\n")
	if left := notCompared(ours, oracle); left != "" {
		b.WriteString("\nNot run against Apache Kafka: " + left + ".\n")
	}
	if notes.Len() > 0 {
		b.WriteString("\n## Notes\n\n" + notes.String())
	}
	if ours.KgoTests != nil {
		b.WriteString("\n## franz-go's integration tests\n\n" + ours.KgoTests.Markdown())
	}
	return b.String()
}

// notCompared lists what the oracle has no result for, by client.
func notCompared(ours, oracle Record) string {
	var out []string
	for _, c := range ours.Columns {
		var names []string
		for _, r := range c.Results {
			if _, ok := oracle.find(c.Client, r.Scenario); !ok {
				names = append(names, r.Scenario)
			}
		}
		if len(names) > 0 {
			out = append(out, c.Client+" "+strings.Join(names, ", "))
		}
	}
	return strings.Join(out, "; ")
}

var shown = map[string]string{Pass: "pass", Fail: "**fail**", NA: "n.a."}

func cell(ours, oracle Record, client, scenario string) (text, why string) {
	have, ok := ours.find(client, scenario)
	if !ok {
		return "–", ""
	}
	text, why = shown[have.Result], oneLine(have.Detail)
	if kafka, ok := oracle.find(client, scenario); ok && kafka.Result != have.Result {
		text += " (Kafka: " + shown[kafka.Result] + ")"
		if kafka.Detail != "" {
			why += " — with Kafka: " + oneLine(kafka.Detail)
		}
	}
	return text, why
}

// oneLine shortens a detail to one line of a table's note.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}
