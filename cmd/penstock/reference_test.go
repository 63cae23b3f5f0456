package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
)

const commandPages = "../../docs/reference/commands"

// docs/reference/commands has a page for each verb, with the usage and the flags that the verb has, and no other pages.
// PENSTOCK_CLI_REFERENCE=1 writes them, and leaves their texts as they are.
func TestCommandLineReference(t *testing.T) {
	want := commandReference(rootCommand(&cli.App{}))
	if os.Getenv("PENSTOCK_CLI_REFERENCE") != "" {
		old, err := filepath.Glob(commandPages + "/*.md")
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range old {
			if err := os.Remove(page); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(commandPages, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	files, err := filepath.Glob(commandPages + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := filepath.Base(f); want[name] == "" {
			t.Errorf("%s is the page of no verb: run make cli-reference", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		page, err := os.ReadFile(filepath.Join(commandPages, name))
		if err != nil {
			t.Errorf("%v: run make cli-reference", err)
			continue
		}
		wanted, have := strings.Split(want[name], "\n"), strings.Split(string(page), "\n")
		for i := range max(len(wanted), len(have)) {
			if i >= len(have) || i >= len(wanted) || have[i] != wanted[i] {
				t.Errorf("%s is not what the commands say from line %d on: run make cli-reference", name, i+1)
				break
			}
		}
	}
}

// commandReference has the pages by the names of their files.
func commandReference(root *cobra.Command) map[string]string {
	pages := map[string]string{}
	var index strings.Builder
	fmt.Fprintf(&index, "# Commands, one by one\n\nThe texts and examples of these pages are what `--help` shows; [penstock](penstock.md) has that of the whole program. "+
		"`make cli-reference` writes the rest.\n[The command line](../cli.md) has the parts that all commands share: the database, the sinks, exit codes.\n\n## Flags of every command\n\n%s", flagTable(root.PersistentFlags()))
	for _, group := range root.Groups() {
		fmt.Fprintf(&index, "## %s\n\n| command | |\n| --- | --- |\n", strings.TrimSuffix(group.Title, ":"))
		for _, verb := range root.Commands() {
			if verb.GroupID != group.ID || verb.Name() == "help" || verb.Name() == "completion" { // Cobra's own
				continue
			}
			fmt.Fprintf(&index, "| [`%s`](%s.md) | %s |\n", verb.Name(), verb.Name(), escape(verb.Short))
			var page strings.Builder
			writeVerb(&page, verb, "#")
			pages[verb.Name()+".md"] = strings.TrimRight(page.String(), "\n") + "\n"
		}
		index.WriteString("\n")
	}
	var whole strings.Builder
	writeText(&whole, root, "#")
	pages["penstock.md"] = strings.TrimRight(whole.String(), "\n") + "\n"
	pages["README.md"] = strings.TrimRight(index.String(), "\n") + "\n"
	return pages
}

func writeVerb(out *strings.Builder, cmd *cobra.Command, heading string) {
	writeText(out, cmd, heading)
	if !cmd.HasSubCommands() {
		out.WriteString(flagTable(cmd.LocalNonPersistentFlags()))
	}
	for _, sub := range cmd.Commands() {
		writeVerb(out, sub, heading+"#")
	}
}

// writeText writes what terminal.Describe reads, and the usage.
func writeText(out *strings.Builder, cmd *cobra.Command, heading string) {
	fmt.Fprintf(out, "%s %s\n\n", heading, cmd.CommandPath())
	if cmd.Long == "" {
		fmt.Fprintf(out, "%s.\n\n", escape(cmd.Short))
	}
	if !cmd.HasSubCommands() {
		fmt.Fprintf(out, "```sh\n%s\n```\n\n", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(cmd.Long), "\n\n") {
		if indented.MatchString(paragraph) {
			before, table, _ := strings.Cut("\n"+paragraph, "\n  ")
			if before = strings.TrimSpace(before); before != "" {
				fmt.Fprintf(out, "%s\n\n", escape(before))
			}
			fmt.Fprintf(out, "```text\n%s\n```\n\n", strings.ReplaceAll(table, "\n  ", "\n"))
		} else if paragraph != "" {
			fmt.Fprintf(out, "%s\n\n", escape(paragraph))
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(out, "```sh\n%s\n```\n\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
	}
}

// indented are the lists and examples in a help text, which are aligned by spaces.
var indented = regexp.MustCompile(`(?m)^ `)

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
		fmt.Fprintf(&rows, "| `%s` | %s |\n", name, escape(strings.ReplaceAll(usage, "\n", " ")))
	})
	if rows.Len() == 0 {
		return ""
	}
	return "| flag | |\n| --- | --- |\n" + rows.String() + "\n"
}

func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`, "#", `\#`, "[", `\[`).Replace(text)
}
