package terminal

import (
	"strings"

	"github.com/spf13/cobra"
)

// Describe gives a command the help of its section in a page of Markdown, whose heading is the command's path. Paragraphs and blocks of
// text are its long text. A block of shell is its example, or its usage. Without a section it has neither.
func Describe(cmd *cobra.Command, page string) {
	_, section, _ := strings.Cut(page, "# "+cmd.CommandPath()+"\n\n")
	section, _, _ = strings.Cut(section, "\n\n#")
	var text []string
	for _, block := range strings.Split(strings.TrimSpace(section), "\n\n") {
		code, fenced := strings.CutSuffix(block, "\n```")
		if table, ok := strings.CutPrefix(code, "```text\n"); ok && fenced {
			text = append(text, indent(table))
		} else if shell, ok := strings.CutPrefix(code, "```sh\n"); ok && fenced {
			if shell != strings.TrimSuffix(cmd.UseLine(), " [flags]") {
				cmd.Example = indent(shell)
			}
		} else if !strings.HasPrefix(block, "| flag |") {
			text = append(text, markdown.Replace(block))
		}
	}
	cmd.Long = strings.Join(text, "\n\n")
}

// markdown takes the escapes out of a paragraph.
var markdown = strings.NewReplacer(`\|`, "|", `\<`, "<", `\*`, "*", `\_`, "_", `\#`, "#", `\[`, "[")

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }
