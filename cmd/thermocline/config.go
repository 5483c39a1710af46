package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"thermocline/cmd/config"
)

// settingFlags adds one flag for each broker setting and returns what was set.
func settingFlags(flags *pflag.FlagSet) func() map[string]string {
	for _, s := range config.Settings() {
		flags.String(s.Key, s.Default, s.Doc)
	}
	return func() map[string]string {
		set := map[string]string{}
		flags.Visit(func(f *pflag.Flag) {
			if isSetting(f.Name) {
				set[f.Name] = f.Value.String()
			}
		})
		return set
	}
}

func isSetting(name string) bool {
	for _, s := range config.Settings() {
		if s.Key == name {
			return true
		}
	}
	return false
}

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show a broker's configuration and what is wrong with it"}
	var file string
	show := &cobra.Command{
		Use:   "show",
		Short: "Print every setting in force, with what it means",
		Long: `Print every setting in force as a YAML file with comments: defaults, then the
file, then the environment (THERMOCLINE_NODE_ID for node.id), then flags.`,
		Args: cobra.NoArgs,
	}
	show.Flags().StringVar(&file, "config", "", "configuration file (YAML)")
	overrides := settingFlags(show.Flags())
	show.RunE = func(cmd *cobra.Command, _ []string) error {
		c, problems := config.Load(file, os.LookupEnv, overrides())
		if err := c.Show(cmd.OutOrStdout()); err != nil {
			return err
		}
		return problems
	}
	cmd.AddCommand(show)
	return cmd
}
