package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
)

const (
	commandLine    = "../../docs/reference/cli.md"
	referenceBegin = "## Every verb and its flags\n\n" // to the end
)

// docs/reference/cli.md lists the verbs and their flags as the commands have them. PENSTOCK_CLI_REFERENCE=1 writes it anew.
func TestCommandLineReference(t *testing.T) {
	page, err := os.ReadFile(commandLine)
	if err != nil {
		t.Fatal(err)
	}
	before, was, begun := strings.Cut(string(page), referenceBegin)
	if !begun {
		t.Fatalf("%s has no %q", commandLine, referenceBegin)
	}
	want := strings.TrimRight(verbsAndFlags(rootCommand(&cli.App{})), "\n") + "\n"
	if os.Getenv("PENSTOCK_CLI_REFERENCE") != "" {
		if err := os.WriteFile(commandLine, []byte(before+referenceBegin+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	wanted, have := strings.Split(want, "\n"), strings.Split(was, "\n")
	for i := range wanted {
		if i >= len(have) || have[i] != wanted[i] {
			t.Fatalf("%s is not what the commands say: run make cli-reference\nit lacks: %s", commandLine, wanted[i])
		}
	}
	if len(have) > len(wanted) {
		t.Fatalf("%s is not what the commands say: run make cli-reference\nit has too much: %s", commandLine, have[len(wanted)])
	}
}

func verbsAndFlags(root *cobra.Command) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Those of every verb:\n\n%s", flagTable(root.PersistentFlags()))
	for _, group := range root.Groups() {
		fmt.Fprintf(&out, "### %s\n\n", strings.TrimSuffix(group.Title, ":"))
		for _, verb := range root.Commands() {
			if verb.GroupID == group.ID {
				writeVerb(&out, verb)
			}
		}
	}
	return out.String()
}

func writeVerb(out *strings.Builder, cmd *cobra.Command) {
	switch cmd.Name() {
	case "help", "completion": // Cobra's own
		return
	}
	if !cmd.HasSubCommands() {
		fmt.Fprintf(out, "`%s`: %s\n\n%s", strings.TrimSuffix(cmd.UseLine(), " [flags]"), cmd.Short, flagTable(cmd.LocalFlags()))
	}
	for _, sub := range cmd.Commands() {
		writeVerb(out, sub)
	}
}

func flagTable(flags *pflag.FlagSet) string {
	var rows strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := strings.TrimSpace("--" + f.Name + " " + value)
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if none := f.DefValue == "" || f.DefValue == "false" || f.DefValue == "[]" || f.DefValue == "0" || f.DefValue == "0s"; !none && !strings.Contains(usage, "(default") {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(&rows, "| `%s` | %s |\n", name, strings.NewReplacer("|", `\|`, "\n", " ", "<", `\<`).Replace(usage))
	})
	if rows.Len() == 0 {
		return ""
	}
	return "| flag | |\n| --- | --- |\n" + rows.String() + "\n"
}
