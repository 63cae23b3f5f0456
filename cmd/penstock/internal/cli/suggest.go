package cli

import (
	"regexp"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/internal/redact"
	"github.com/penstock/penstock/internal/shell"
)

// suggestion is a place where a text names a verb to run.
var suggestion = regexp.MustCompile(`\bpenstock (?:(?:outbox|queue|inbox|dead|job|schedule|subscription|adopt) [a-z]+|demo|migrate|relay|publish|tail|enqueue|work|status|parked|replay|doctor|explain)\b`)

// Suggest makes the commands in a text refer to this database: it adds the necessary global flags.
// In place of a URL with a password it names the variable, if that has the same URL. Otherwise the command
// would act on the variable's database: it has the URL with a placeholder for the password. A command for another
// role, such as a grant, has its own URL.
func (a *App) Suggest(text string) string {
	return suggestion.ReplaceAllStringFunc(text, func(command string) string {
		given := ""
		add := func(flag, value string) {
			if value != "" && !strings.Contains(text, flag+" "+value) { // the store's hint may have the flags already
				given += " " + flag + " " + shell.Word(value)
			}
		}
		if !strings.HasSuffix(command, " grant") {
			switch masked := config.URL(a.DatabaseURL).String(); {
			case masked == a.DatabaseURL:
				add("--database-url", a.DatabaseURL)
			case a.Getenv("PENSTOCK_DATABASE_URL") == a.DatabaseURL:
				given += ` --database-url "$PENSTOCK_DATABASE_URL"`
			default:
				add("--database-url", strings.ReplaceAll(masked, redact.Masked, "PASSWORD"))
			}
			add("--config", a.ConfigFile)
		}
		add("--schema", a.Schema)
		add("--profile", a.Profile)
		return command + given
	})
}
