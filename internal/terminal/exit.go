package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
)

// The exit codes are part of the interface: scripts and supervisors read them.
// docs/reference/cli.md and each program's --help describe them.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitCheck       = 3
	ExitDatabase    = 4
	ExitBroker      = 5
	ExitInterrupted = 130
)

// ExitError is an error with the exit code of the process.
type ExitError struct {
	Code int
	Err  error
	Help bool // --help is the next step
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// Usage marks err as the caller's mistake: a flag, a file or an input.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: ExitUsage, Err: err}
}

// Misuse is usage for an error that does not suggest a correct form.
func Misuse(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: ExitUsage, Err: err, Help: true}
}

// Args reports a wrong number of arguments in the words of exactly.
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

// Verb is a command that takes the arguments of its usage: NAME, [NAME] for one that may be left out, and NAME… for one or more, [NAME…] for any number. It leaves
// out flags in the usage and their values.
func Verb(use, short string, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	least, most, ofFlag := 0, 0, false
	for _, word := range strings.Fields(use)[1:] {
		if isFlag := strings.Contains(word, "--"); isFlag || ofFlag {
			ofFlag = isFlag
			continue
		}
		most++
		if !strings.HasPrefix(word, "[") {
			least++
		}
		if strings.HasSuffix(strings.TrimSuffix(word, "]"), "…") {
			most = math.MaxInt
		}
	}
	return &cobra.Command{Use: use, Short: short, Args: Args(cobra.RangeArgs(least, most)), RunE: run}
}

// Group is a verb that has others below it and shows its help if it is called alone.
func Group(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	cmd.Args = KnownVerb
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(verbs...)
	return cmd
}

// KnownVerb refuses an unknown verb, and suggests one that may have been meant.
func KnownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%q is not a verb of %s", args[0], cmd.CommandPath())
	for _, other := range cmd.Root().Commands() {
		if other.Name() == args[0] {
			return Usage(fmt.Errorf("%w: did you mean %s?", err, other.CommandPath()))
		}
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return Usage(fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or ")))
	}
	return Misuse(err)
}

// ExitCode is the exit code for err.
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
		return ExitBroker
	}
	return ExitFailure
}

// OneLine joins the lines of an error. pgx has one for each address it tried, often the same, and
// one for TLS if it has continued without it.
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

// Reporting is how a program reports the error that it ends with.
type Reporting struct {
	Program        string
	Stdout, Stderr io.Writer
	Next           func(err error) string   // the next step for an error that has no hint
	Edit           func(text string) string // what is shown of a problem and of a next step
	Verbatim       bool                     // the problem has its own lines
}

// Report prints err as "program: problem: next step" and returns the exit code.
func (r *Reporting) Report(failed *cobra.Command, err error) int {
	if out, ok := r.Stdout.(*Results); ok && out.Err() != nil {
		// The result is lost: the reader has not received it.
		err = &ExitError{Code: ExitFailure, Err: fmt.Errorf("writing to standard output: %w", out.Err())}
	}
	code := ExitCode(err)
	switch code {
	case ExitOK:
		return code
	case ExitInterrupted:
		fmt.Fprintln(r.Stderr, r.Program+": interrupted")
		return code
	}
	what, next := err.Error(), ""
	exit, marked := errors.AsType[*ExitError](err)
	if hint, ok := errors.AsType[*penstock.HintError](err); ok {
		// The hint goes to the end, wherever it was wrapped.
		what, next = strings.Replace(what, hint.Error(), hint.Err.Error(), 1), r.Edit(hint.Hint)
	} else if marked && exit.Help && failed != nil {
		next = fmt.Sprintf("see %s --help", failed.CommandPath())
	} else if !marked {
		next = r.Edit(r.Next(err))
	}
	if !r.Verbatim {
		what = r.Edit(OneLine(what))
	}
	if next != "" {
		what += ": " + next
	}
	fmt.Fprintln(r.Stderr, r.Program+": "+what)
	return code
}
