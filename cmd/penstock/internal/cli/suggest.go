package cli

import (
	"regexp"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/internal/shell"
)

// suggestion is a place where a text names a verb to run.
var suggestion = regexp.MustCompile(`\bpenstock (?:(?:outbox|queue|inbox|dead|job|schedule|subscription|adopt) [a-z]+|demo|migrate|relay|publish|tail|enqueue|work|status|parked|replay|doctor|explain)\b`)

// Suggest makes the commands in a text refer to this database: it adds the necessary global flags.
// In place of a URL with a password it names the variable for one, because a masked URL cannot be
// pasted. A command for another role, such as a grant, has its own URL.
func (a *App) Suggest(text string) string {
	return suggestion.ReplaceAllStringFunc(text, func(command string) string {
		given := ""
		add := func(flag, value string) {
			if value != "" && !strings.Contains(text, flag+" "+value) { // the store's hint may have the flags already
				given += " " + flag + " " + shell.Word(value)
			}
		}
		if !strings.HasSuffix(command, " grant") {
			if config.URL(a.DatabaseURL).String() == a.DatabaseURL {
				add("--database-url", a.DatabaseURL)
			} else {
				given += ` --database-url "$PENSTOCK_DATABASE_URL"`
			}
			add("--config", a.ConfigFile)
		}
		add("--schema", a.Schema)
		add("--profile", a.Profile)
		return command + given
	})
}
