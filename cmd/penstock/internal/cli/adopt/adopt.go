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
	return terminal.Group(&cobra.Command{Use: "adopt", Short: "Relay an outbox table that your application already has"},
		checkCommand(a), presetsCommand(a))
}

func presetsCommand(a *cli.App) *cobra.Command {
	cmd := terminal.Verb("presets [NAME]", "Print the mappings of well-known tables, for copying", func(_ *cobra.Command, args []string) error {
		presets := adopted.Presets()
		if len(args) > 0 {
			presets = slices.DeleteFunc(presets, func(p adopted.Preset) bool { return p.Name != args[0] })
		}
		if len(presets) == 0 {
			return terminal.Usage(fmt.Errorf("%q is not a preset: there are %s", args[0], strings.Join(adopted.PresetNames(), ", ")))
		}
		return showPresets(a, presets)
	})
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
