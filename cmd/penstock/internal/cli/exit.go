package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/redact"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// NotEmpty refuses flags that were given and are empty: they come from an unset variable of a
// script, which must not widen a choice.
func NotEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if f := flags.Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return terminal.Usage(fmt.Errorf("--%s is empty: give it a text, or leave it out", name))
		}
	}
	return nil
}

// Refuse is an error of usage if something is so; the text has a correct form.
func Refuse(is bool, format string, args ...any) error {
	if !is {
		return nil
	}
	return terminal.Usage(fmt.Errorf(format, args...))
}

// Report prints err as "penstock: problem: next step" and returns the exit code.
func (a *App) Report(failed *cobra.Command, err error) int {
	_, quotesFile := errors.AsType[config.Errors](err)
	r := terminal.Reporting{Program: "penstock", Stdout: a.Stdout, Stderr: a.Stderr, Next: nextStep, Edit: func(text string) string { return a.Suggest(exactGrant(failed, text)) }, Verbatim: quotesFile}
	return r.Report(failed, err)
}

// exactGrant names the grant of a verb that was refused the whole schema, which the store cannot know.
func exactGrant(failed *cobra.Command, text string) string {
	if failed == nil || !strings.Contains(text, pgerror.RightsOfVerbs) {
		return text
	}
	named := func(otherwise string) string { return shell.Word(cmp.Or(failed.Flags().Arg(0), otherwise)) }
	grant := ""
	_, verbs, _ := strings.Cut(failed.CommandPath(), " ")
	switch verb, _, _ := strings.Cut(verbs, " "); verb {
	case "work":
		grant = "penstock queue grant " + named("QUEUE") + " ROLE --work"
	case "enqueue":
		grant = "penstock queue grant " + named("QUEUE") + " ROLE --enqueue"
	case "queue", "job":
		grant = "penstock queue grant " + named("QUEUE") + " ROLE --operate"
	case "relay", "serve", "outbox", "tail", "parked":
		grant = RelayGrant
	case "dead":
		grant = "penstock queue grant " + named("QUEUE") + " ROLE --operate, or if it is an outbox " + RelayGrant
	case "inbox":
		grant = "penstock inbox grant " + named("CONSUMER") + " ROLE --operate"
	default:
		grant = SeeGrants
	}
	return strings.ReplaceAll(text, pgerror.RightsOfVerbs, grant)
}

const (
	// RelayGrant gives a role the rights of a relay.
	RelayGrant = "penstock outbox grant ROLE --relay"
	// SeeGrants give a role the rights to see outboxes, and queues.
	SeeGrants = "to see outboxes, " + RelayGrant + "; to see a queue, penstock queue grant QUEUE ROLE --operate"
)

// nextStep is the hint for an error without one.
func nextStep(err error) string {
	switch {
	case errors.Is(err, penstock.ErrNotMigrated):
		return "run penstock migrate"
	case errors.Is(err, penstock.ErrNoOutbox):
		return "penstock outbox list shows all, penstock outbox create NAME makes one"
	case errors.Is(err, penstock.ErrNoSubscription):
		return "penstock status shows those there are, its relay makes one"
	case errors.Is(err, penstock.ErrNoQueue):
		return "penstock queue list shows all, penstock queue create NAME makes one"
	case errors.Is(err, penstock.ErrNoSchedule):
		return "penstock schedule list QUEUE shows those there are"
	case errors.Is(err, penstock.ErrNoInbox):
		return "penstock inbox list shows those there are, penstock inbox create CONSUMER makes one"
	case errors.Is(err, penstock.ErrOutboxExists), errors.Is(err, penstock.ErrQueueExists), errors.Is(err, penstock.ErrInboxExists):
		return "use it, or choose another name"
	case errors.Is(err, penstock.ErrHeld):
		return "stop that relay, or wait until its lease ends"
	}
	return terminal.DatabaseHint(err)
}

// suggestion is a place where a text names a verb to run.
var suggestion = regexp.MustCompile(`\bpenstock (?:(?:outbox|queue|inbox|dead|job|schedule|subscription|adopt) [a-z]+|demo|migrate|relay|publish|tail|enqueue|work|status|parked|replay|doctor|explain)\b`)

// refusedRole is a place where a text has ROLE for the role that was refused.
var refusedRole = regexp.MustCompile(`(\bpenstock (?:outbox|queue|inbox) grant (?:'[^']*' |\S+ )?)ROLE\b`)

// ownRole puts the role of the database's URL into suggested grants.
func (a *App) ownRole(text string) string {
	if !refusedRole.MatchString(text) {
		return text
	}
	given, _, err := a.Database()
	if err != nil {
		return text
	}
	cfg, err := pgconn.ParseConfig(given)
	if err != nil { // another database, where a role is part of the hint
		return text
	}
	return refusedRole.ReplaceAllString(text, "${1}"+strings.ReplaceAll(shell.Word(cfg.User), "$", "$$"))
}

// forOwner is a place where a text names the role that must run its command.
var forOwner = regexp.MustCompile(`as the (?:schema's owner|owner of the tables), ([^\s,:]+)`)

// connecting is the URL of the database for the role that runs the commands of a text: another one has another password.
func (a *App) connecting(text string) string {
	owner := forOwner.FindStringSubmatch(text)
	u, err := url.Parse(a.DatabaseURL)
	if owner == nil || err != nil || u.User == nil || u.User.Username() == owner[1] {
		return a.DatabaseURL
	}
	u.User = url.User(owner[1])
	return u.String()
}

// Suggest makes the commands in a text refer to this database: it adds the necessary global flags.
// In place of a URL with a password it names the variable, if that has the same URL. Otherwise the command
// would act on the variable's database: it has the URL with a placeholder for the password. A command for another
// role, such as a grant, has its own URL, and grants to this one.
func (a *App) Suggest(text string) string {
	choices := strings.Split(a.ownRole(text), ", or ")
	for i, text := range choices { // of which each may be for another role
		choices[i] = a.suggest(text)
	}
	return strings.Join(choices, ", or ")
}

func (a *App) suggest(text string) string {
	connecting := a.connecting(text)
	return suggestion.ReplaceAllStringFunc(text, func(command string) string {
		given := ""
		add := func(flag, value string) {
			if value != "" && !strings.Contains(text, flag+" "+value) { // the store's hint may have the flags already
				given += " " + flag + " " + shell.Word(value)
			}
		}
		if !strings.HasSuffix(command, " grant") {
			switch masked := config.URL(connecting).String(); {
			case masked == connecting:
				add("--database-url", connecting)
			case a.Getenv("PENSTOCK_DATABASE_URL") == connecting:
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
