package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/docs/reference/commands"
)

// describe gives a command, and those below it, the text and the example of their sections in docs/reference/commands. A new command has
// none before its page is written. TestCommandLineReference compares the pages with the commands.
func describe(cmd *cobra.Command) {
	path := strings.Fields(cmd.CommandPath())
	page, _ := commands.Pages.ReadFile(path[min(1, len(path)-1)] + ".md")
	_, section, _ := strings.Cut("\n"+string(page), "\n"+strings.Repeat("#", max(1, len(path)-1))+" "+cmd.CommandPath()+"\n\n")
	section, _, _ = strings.Cut(section, "\n\n#")
	usage := !cmd.HasSubCommands()
	var text []string
	for _, block := range strings.Split(strings.TrimSpace(section), "\n\n") {
		code, fenced := strings.CutSuffix(block, "\n```")
		if table, ok := strings.CutPrefix(code, "```text\n"); ok && fenced {
			text = append(text, indent(table))
		} else if shell, ok := strings.CutPrefix(code, "```sh\n"); ok && fenced {
			if !usage {
				cmd.Example = indent(shell)
			}
			usage = false
		} else if !strings.HasPrefix(block, "| flag |") {
			text = append(text, markdown.Replace(block))
		}
	}
	cmd.Long = strings.Join(text, "\n\n")
	for _, sub := range cmd.Commands() {
		describe(sub)
	}
}

// markdown takes the escapes out of a paragraph.
var markdown = strings.NewReplacer(`\|`, "|", `\<`, "<", `\*`, "*", `\_`, "_", `\#`, "#", `\[`, "[")

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }
