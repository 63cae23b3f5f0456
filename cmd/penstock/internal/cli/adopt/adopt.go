// Package adopt has penstock adopt, and the code for adopted tables that other verbs share.
package adopt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/terminal"
)

func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Relay an outbox table that your application already has",
		Long: `An outbox table that an application has made and fills can be relayed as it is. Its
columns are mapped in the configuration, or a preset maps them. The table is never
altered: Penstock keeps its notes in its own tables. This works on PostgreSQL, and with
limits in the portable profile and on MariaDB (docs/reference/engines.md).

  penstock adopt presets                                   known tables
  penstock adopt check --preset dotnet --table shop.outbox_messages   on PostgreSQL
  penstock relay --adopt dotnet --table shop.outbox_messages --sink amqp://localhost/

From then on status, parked, dead and subscription drop know its subscription.`,
	}
	return terminal.Group(cmd, checkCommand(a), presetsCommand(a))
}

func presetsCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "presets [NAME]",
		Short: "Print the mappings of well-known tables, for copying",
		Long: `Print the mappings of well-known tables, as a configuration file has them. If your
table is exactly like one, write the preset's name alone, as in adopt: dotnet. If it
differs a little, give the preset and the differences. Otherwise copy the closest
mapping and change it.`,
		Example: `  penstock adopt presets
  penstock adopt presets debezium
  penstock adopt presets --json | jq -r '.[].preset'`,
		Args: terminal.Args(cobra.MaximumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			presets := adopted.Presets()
			if len(args) > 0 {
				presets = slices.DeleteFunc(presets, func(p adopted.Preset) bool { return p.Name != args[0] })
			}
			if len(presets) == 0 {
				return terminal.Usage(fmt.Errorf("%q is not a preset: there are %s", args[0], strings.Join(adopted.PresetNames(), ", ")))
			}
			return showPresets(a, presets)
		},
	}
	return a.WithJSON(cmd, "a JSON array on one line")
}

// presetJSON is a preset for programs.
type presetJSON struct {
	Preset string       `json:"preset"`
	About  string       `json:"about"`
	Adopt  config.Adopt `json:"adopt"`
}

func showPresets(a *cli.App, presets []adopted.Preset) error {
	told := make([]presetJSON, len(presets))
	for i, p := range presets {
		p.Config.SetDefaults()
		p.Config.Preset = "" // the mapping stands alone
		told[i] = presetJSON{p.Name, p.About, config.Adopt{Config: p.Config}}
	}
	if a.JSON {
		return json.NewEncoder(a.Stdout).Encode(told)
	}
	for i, p := range told {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		fmt.Fprintf(a.Stdout, "# %s\n# In one line: adopt: %s\nadopt:\n", p.About, p.Preset)
		for line := range strings.Lines(p.Adopt.String()) {
			fmt.Fprint(a.Stdout, "  "+line)
		}
	}
	return nil
}
