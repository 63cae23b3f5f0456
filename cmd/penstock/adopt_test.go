package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	presets "github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/terminal"
)

// adopted is the table that a subscription of a configuration adopts.
func adopted(t *testing.T, subscription string) *config.Adopt {
	t.Helper()
	file := "database_url: postgres://localhost/shop\nsubscriptions:\n  - name: a\n    sink: discard\n" + subscription
	cfg, err := config.Loader{}.LoadBytes("penstock.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	return cfg.Subscriptions[0].Adopt
}

// The mapping that is printed for copying means the same as the preset.
func TestPresetsCanBeCopied(t *testing.T) {
	for _, name := range presets.PresetNames() {
		var printed strings.Builder
		for line := range strings.Lines(must(t, "adopt", "presets", name)) {
			printed.WriteString("    " + line)
		}
		preset := adopted(t, "    adopt: "+name+"\n")
		preset.Preset = ""
		same(t, name, adopted(t, printed.String()).String(), preset.String())
	}
	var all []struct {
		Preset string
		Adopt  map[string]any
	}
	if err := json.Unmarshal([]byte(must(t, "adopt", "presets", "--json")), &all); err != nil || len(all) != len(presets.PresetNames()) || all[1].Preset != "dotnet" || all[1].Adopt["delivered"] != "mark" {
		t.Errorf("%+v, %v", all, err)
	}
	invoke(t, "adopt", "presets", "java").wants(t, terminal.ExitUsage, `"java" is not a preset: there are debezium, dotnet`)
}
