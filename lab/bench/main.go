// Bench measures Penstock against the ceilings of this machine: the flags of each benchmark, and its figures as a
// table. Package measure does the measuring.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres"
)

func main() {
	a := &app{stdout: &terminal.Results{W: os.Stdout}, stderr: terminal.NewScrubber(os.Stderr), getenv: os.Getenv}
	os.Exit(a.run(context.Background(), os.Args[1:]))
}

// app has the parts that every benchmark shares: the streams and the global flags.
type app struct {
	stdout io.Writer
	stderr *terminal.Scrubber
	getenv func(string) string

	databaseURL, schema, profile, logLevel, logFormat string
}

// run is main with everything it touches given to it, and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := rootCommand(a)
	root.SetArgs(args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	failed, err := root.ExecuteContextC(ctx)
	r := terminal.Reporting{Program: "bench", Stdout: a.stdout, Stderr: a.stderr, Next: terminal.DatabaseHint, Edit: func(text string) string { return text }}
	return r.Report(failed, err)
}

// help has a section for each verb; see terminal.Describe.
//
//go:embed help.md
var help string

func rootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:               "bench",
		Short:             "Measure Penstock against the ceilings of this machine",
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRun:  func(cmd *cobra.Command, _ []string) { cmd.SetContext(terminal.Interruptible(cmd.Context())) },
	}
	terminal.Describe(root, help)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return terminal.Misuse(err) })
	flags := root.PersistentFlags()
	flags.StringVar(&a.databaseURL, "database-url", "", "postgres://user:password@host/db, sqlite:FILE or mysql://user:password@host/ (default $PENSTOCK_DATABASE_URL)")
	flags.StringVar(&a.schema, "schema", "", "PostgreSQL schema of Penstock's tables (default one of the benchmark's own)")
	flags.StringVar(&a.profile, "profile", "postgres", "how the database is used: postgres, portable, or auto, which asks the server")
	flags.StringVar(&a.logLevel, "log-level", "", "debug, info, warn or error (default what the benchmark needs)")
	flags.StringVar(&a.logFormat, "log-format", "text", "text or json")
	var verbs []*cobra.Command
	for _, e := range experiments {
		verbs = append(verbs, e.command(a))
	}
	verbs = append(verbs, allCommand(a))
	for _, cmd := range verbs {
		cmd.Args = terminal.Args(cobra.NoArgs)
	}
	return terminal.Group(root, verbs...)
}

// database is that of --database-url or $PENSTOCK_DATABASE_URL in the profile that was asked for, or none.
func (a *app) database(ctx context.Context) (url string, err error) {
	url = cmp.Or(a.databaseURL, a.getenv("PENSTOCK_DATABASE_URL"))
	a.stderr.Hide(url)
	switch a.profile {
	case "postgres":
		return url, nil
	case "portable":
		return portable.URL(url), nil
	case "auto":
		if slices.Contains(postgres.Driver.Schemes, drivers.Scheme(url)) && portable.Wanted(ctx, url) {
			url = portable.URL(url)
		}
		return url, nil
	}
	return "", terminal.Usage(fmt.Errorf("--profile: %q is none of auto, postgres and portable", a.profile))
}
