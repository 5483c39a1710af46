package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"thermocline/ingest/topicconfig"
)

// warnOfIdleConfigs says which of the configs that were set have no effect on
// a Thermocline cluster: they are kept, so that tools which set them work, and
// who sets one by hand should not wait for what will not happen.
func warnOfIdleConfigs(cmd *cobra.Command, adm *kadm.Client, topic string, set map[string]*string) error {
	idle := idleConfigs(set)
	if len(idle) == 0 {
		return nil
	}
	ours, err := hasOurConfigs(cmd.Context(), adm, topic)
	if err != nil || !ours {
		return err
	}
	for _, d := range idle {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s=%s is kept, and has no effect: %s\n", d.Name, *set[d.Name], d.Why)
	}
	return nil
}

// idleConfigs are those of set that brokers only keep, with another value
// than what holds anyway.
func idleConfigs(set map[string]*string) []topicconfig.Def {
	var out []topicconfig.Def
	for _, name := range slices.Sorted(maps.Keys(set)) {
		d, known := topicconfig.Lookup(name)
		if !known || d.Handling != topicconfig.Stored || set[name] == nil {
			continue
		}
		if !strings.EqualFold(strings.TrimSpace(*set[name]), holds(d)) {
			out = append(out, *d)
		}
	}
	return out
}

// holds is the value that describes what the brokers do: while retention is
// not built, records are kept without an end.
func holds(d *topicconfig.Def) string {
	if d.Name == "retention.ms" {
		return "-1"
	}
	return d.Default
}

// hasOurConfigs tells a Thermocline cluster from others, in which these
// configs do have an effect.
func hasOurConfigs(ctx context.Context, adm *kadm.Client, topic string) (bool, error) {
	described, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return false, fmt.Errorf("asking for the topic's configs: %w", err)
	}
	for _, r := range described {
		for _, c := range r.Configs {
			if c.Key == rollConfig {
				return true, nil
			}
		}
	}
	return false, nil
}
