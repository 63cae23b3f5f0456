package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
)

func TestEveryVerbTeaches(t *testing.T) {
	var a cli.App
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if cmd.Runnable() && !cmd.HasSubCommands() {
			if cmd.Short == "" || cmd.Example == "" {
				t.Errorf("%s has no short text or no example", cmd.CommandPath())
			}
			if !strings.Contains(cmd.Example, cmd.CommandPath()) {
				t.Errorf("the example of %s does not show it", cmd.CommandPath())
			}
		}
	}
	root := rootCommand(&a)
	visit(root)
	for _, code := range []string{"0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "130 "} {
		if !strings.Contains(root.Long, "\n  "+code) {
			t.Errorf("penstock --help does not explain exit code %s", code)
		}
	}
	help := must(t, "relay", "--help")
	if !strings.Contains(help, "--database-url") || !strings.Contains(help, "Examples:") {
		t.Errorf("penstock relay --help says %q", help)
	}
}

var (
	exampleWord = regexp.MustCompile(`(?:"[^"]*"|'[^']*'|\$\([^)]*\)|[^\s'"|&;<>])+|[|&;<>]+`)
	shellQuotes = regexp.MustCompile(`"[^"]*"|'[^']*'`)
)

// Each command in the examples of --help can be copied: the verb, its flags, their values and the number of its arguments are right.
func TestExamplesAreCommands(t *testing.T) {
	found := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", " ")) {
			var command []string
			read := func() {
				if len(command) > 1 && command[0] == "penstock" {
					found++
					if err := misused(command[1:]); err != nil {
						t.Errorf("%s --help: %s: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
					}
				}
				command = nil
			}
			for _, word := range exampleWord.FindAllString(line, -1) {
				if strings.HasPrefix(word, "#") {
					break
				}
				switch {
				case strings.ContainsAny(word[:1], "|&;<>"):
					read()
				case len(command) > 0 || word == "penstock":
					command = append(command, shellQuotes.ReplaceAllStringFunc(word, func(quoted string) string { return quoted[1 : len(quoted)-1] }))
				}
			}
			read()
		}
	}
	visit(tree())
	if found < 100 {
		t.Errorf("it has found %d commands only", found)
	}
}

// Help shows a word for the value of each flag, such as name=value, and not Go's type.
func TestFlagsHaveWords(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Name() == "completion" { // Cobra's own
			return
		}
		for _, flags := range []*pflag.FlagSet{cmd.LocalNonPersistentFlags(), cmd.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				if f.Value.Type() != "bool" && strings.Count(f.Usage, "`") != 2 {
					t.Errorf("%s --%s has no word between back quotes, so help shows %s", cmd.CommandPath(), f.Name, f.Value.Type())
				}
			})
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(rootCommand(&cli.App{}))
}

// Each folder of cmd/penstock/internal/cli has the name of a verb, whose code it has.
func TestEveryFolderIsAVerb(t *testing.T) {
	folders, err := filepath.Glob("internal/cli/*")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	root := rootCommand(&cli.App{})
	for _, folder := range folders {
		name := filepath.Base(folder)
		if _, _, err := root.Find([]string{name}); err != nil && filepath.Ext(name) == "" && name != "clitest" {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

func TestVersion(t *testing.T) {
	if out := must(t, "version"); !strings.HasPrefix(out, "penstock ") {
		t.Errorf("got %q", out)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(must(t, "version", "--json")), &v); err != nil || v["version"] == "" || v["go"] == "" {
		t.Errorf("got %v, %v", v, err)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := must(t, "completion", shell); !strings.Contains(out, "penstock") {
			t.Errorf("%s: got %q", shell, out)
		}
	}
}

func TestCompletionKnowsTheVerbs(t *testing.T) {
	for args, want := range map[string][]string{
		"__complete d":       {"dead\t", "demo\t"},
		"__complete dead ":   {"list\t", "show\t", "retry\t", "discard\t"},
		"__complete outbox ": {"set\t"},
		"__complete queue ":  {"create\t", "set\t", "pause\t", "resume\t", "list\t", "drop\t"},
		"__complete w":       {"work\t"},
		"__complete p":       {"parked\t", "publish\t"},
		"__complete re":      {"relay\t", "replay\t"},
	} {
		contains(t, must(t, strings.Split(args, " ")...), want...)
	}
}
