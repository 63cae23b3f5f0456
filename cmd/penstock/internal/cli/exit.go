package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
)

// The exit codes are part of the interface: scripts and supervisors read them.
// docs/cli.md and rootLong describe them.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitCheck       = 3
	ExitDatabase    = 4
	exitBroker      = 5
	ExitInterrupted = 130
)

const ExitCodesHelp = `Exit codes:
  0    done
  1    it failed for another reason than those below
  2    a flag, the configuration or an input cannot be used
  3    the demo or a benchmark found a message lost, phantom or out of order, or
       adopt check or migrate --check something to act on, or doctor something critical
  4    the database cannot be reached, refuses us, or is not migrated
  5    the broker cannot be reached or refuses us
  130  interrupted before it was done`

// ExitError is an error with the exit code it ends the process with.
type ExitError struct {
	Code int
	Err  error
	help bool // --help is the next step
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// Usage marks err as the caller's: a flag, a file or an input.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: ExitUsage, Err: err}
}

// Misuse is usage where the error does not say what to write instead.
func Misuse(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: ExitUsage, Err: err, help: true}
}

// Args has a wrong number of arguments reported in the words of exactly.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		_, takes, _ := strings.Cut(cmd.Use, " ")
		return wrongNumber(len(args), takes)
	}
}

func wrongNumber(got int, takes string) error {
	if takes == "" {
		takes = "none"
	}
	return Misuse(fmt.Errorf("got %s, it takes %s", Plural(int64(got), "argument"), takes))
}

// NotEmpty refuses flags that were given and are empty: how an unset variable of a
// script looks, which must not widen a choice.
func NotEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if f := flags.Lookup(name); f.Changed && f.Value.String() == "" {
			return Usage(fmt.Errorf("--%s is empty: give it a text, or leave it out", name))
		}
	}
	return nil
}

// Exactly wants one argument for each name.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return wrongNumber(len(args), strings.Join(names, " "))
	}
}

// Group is a verb that has others below it and shows its help alone.
func Group(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	cmd.Args = KnownVerb
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(verbs...)
	return cmd
}

// KnownVerb refuses what is no verb, with what may have been meant.
func KnownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%q is no verb of %s", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return Usage(fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or ")))
	}
	return Misuse(err)
}

func ExitCode(err error) int {
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Code
	}
	_, badField := errors.AsType[*penstock.FieldError](err)
	switch {
	case err == nil:
		return ExitOK
	case badField:
		return ExitUsage
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case isDatabaseError(err):
		return ExitDatabase
	case penstock.IsUnavailable(err):
		return exitBroker
	}
	return ExitFailure
}

// Report prints err as "penstock: what: next step" and returns the exit code.
func (a *App) Report(failed *cobra.Command, err error) int {
	if out, ok := a.Stdout.(*Results); ok && out.err != nil {
		// Whatever became of it, nobody has read what it said.
		err = &ExitError{Code: ExitFailure, Err: fmt.Errorf("writing to standard output: %w", out.err)}
	}
	code := ExitCode(err)
	switch code {
	case ExitOK:
		return code
	case ExitInterrupted:
		fmt.Fprintln(a.Stderr, "penstock: interrupted")
		return code
	}
	what, next := err.Error(), ""
	exit, marked := errors.AsType[*ExitError](err)
	if hint, ok := errors.AsType[*penstock.HintError](err); ok {
		// The hint goes to the end, whatever was wrapped around it.
		what, next = strings.Replace(what, hint.Error(), hint.Err.Error(), 1), a.Suggest(hint.Hint)
	} else if marked && exit.help && failed != nil {
		next = fmt.Sprintf("see %s --help", failed.CommandPath())
	} else if !marked {
		next = a.Suggest(nextStep(err))
	}
	if _, quotesFile := errors.AsType[config.Errors](err); !quotesFile {
		what = a.Suggest(OneLine(what))
	}
	if next != "" {
		what += ": " + next
	}
	fmt.Fprintln(a.Stderr, "penstock: "+what)
	return code
}

// OneLine joins the lines of an error. pgx gives one for each address it tried,
// often the same, and one for TLS where it has gone on without.
func OneLine(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	isTLS := func(line string) bool { return strings.HasSuffix(line, "tls error: server refused TLS connection") }
	if told := slices.DeleteFunc(slices.Clone(lines), isTLS); len(told) > 1 { // the first names user and database
		lines = told
	}
	return strings.Join(lines, " ")
}

// nextStep is the hint for an error that came without one.
func nextStep(err error) string {
	switch {
	case errors.Is(err, penstock.ErrNotMigrated):
		return "run penstock migrate"
	case errors.Is(err, penstock.ErrNoOutbox):
		return "penstock outbox list shows what there is, penstock outbox create makes one"
	case errors.Is(err, penstock.ErrNoSubscription):
		return "penstock status shows those there are, penstock relay makes one"
	case errors.Is(err, penstock.ErrNoQueue):
		return "penstock queue list shows what there is, penstock queue create makes one"
	case errors.Is(err, penstock.ErrNoSchedule):
		return "penstock schedule list shows those there are"
	case errors.Is(err, penstock.ErrNoInbox):
		return "penstock inbox list shows those there are, penstock inbox create makes one"
	case errors.Is(err, penstock.ErrOutboxExists), errors.Is(err, penstock.ErrQueueExists), errors.Is(err, penstock.ErrInboxExists):
		return "use it, or choose another name"
	case errors.Is(err, penstock.ErrHeld):
		return "stop that relay, or wait until its lease ends"
	}
	return databaseHint(err)
}
