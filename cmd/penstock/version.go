package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/terminal"
)

// version is the next release, or this one where the commit has its tag. TestVersions compares it with those of the packages.
const version = "0.1.0"

type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Built   string `json:"commit_time,omitempty"`
	Dirty   bool   `json:"dirty,omitempty"`
	Go      string `json:"go"`
	System  string `json:"system"`
}

func versionCommand(a *cli.App) *cobra.Command {
	cmd := terminal.Verb("version", "Print the version", func(*cobra.Command, []string) error {
		v := readVersion()
		if a.JSON {
			return json.NewEncoder(a.Stdout).Encode(v)
		}
		commit := v.Commit
		if commit == "" {
			commit = "unknown"
		}
		if v.Dirty {
			commit += " with changes"
		}
		fmt.Fprintf(a.Stdout, "penstock %s (commit %s, %s, %s)\n", v.Version, commit, v.Go, v.System)
		return nil
	})
	return a.WithJSON(cmd, "one JSON line")
}

func readVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.time":
				v.Built = s.Value
			case "vcs.modified":
				v.Dirty = s.Value == "true"
			}
		}
	}
	return v
}
