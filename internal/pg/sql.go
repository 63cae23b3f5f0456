package pg

import (
	"embed"
	"strings"
)

// Statement loads sql/NAME.sql. It removes comment lines, which the server would parse with every
// statement that is not prepared.
func Statement(files embed.FS, name string) string {
	text, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // embedded: missing only if the build is wrong
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String())
}

// Literal quotes a text.
func Literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
