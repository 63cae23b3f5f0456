package main

import (
	"context"
	"io"
	"maps"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/console"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/dead"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/demo"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/doctor"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/explain"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/exporter"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/inbox"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/migrate"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/outbox"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/queue"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/relay"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/status"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/work"
	"github.com/penstock/penstock/docs/reference/commands"
	"github.com/penstock/penstock/internal/terminal"
)

func rootCommand(a *cli.App) *cobra.Command {
	root := &cobra.Command{
		Use:           "penstock",
		Short:         "A transactional outbox and job queues in your own database, and their relay",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          terminal.KnownVerb,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if !maps.Equal(cmd.Annotations, terminal.OwnSignals) {
			cmd.SetContext(terminal.Interruptible(cmd.Context()))
		}
		_, err := terminal.NewLogger(a.Stderr, a.LogLevel, a.LogFormat)
		return err
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return terminal.Misuse(err) })
	flags := root.PersistentFlags()
	flags.Var(cli.DatabaseFlag{App: a}, "database-url", "`url` of the database: postgres://user:password@host/db, sqlite:FILE or mysql://user:password@host/ (default $PENSTOCK_DATABASE_URL)")
	flags.StringVar(&a.Schema, "schema", "", "PostgreSQL `schema` of Penstock's tables (default \"penstock\")")
	flags.StringVar(&a.Profile, "profile", "", "`profile` in which the database is used: postgres, portable, or auto, which asks the server (default \"postgres\")")
	flags.StringVar(&a.ConfigFile, "config", "", "configuration `file` (default penstock.yaml, if it is there)")
	flags.StringVar(&a.LogLevel, "log-level", "info", "`level` of the log: debug, info, warn or error")
	flags.StringVar(&a.LogFormat, "log-format", "text", "`format` of the log: text or json")
	for _, group := range []struct {
		id, title string
		verbs     []*cobra.Command
	}{
		{"any", "Setting up and watching:", []*cobra.Command{demo.Command(a), migrate.Command(a), status.Command(a), doctor.Command(a), explain.Command(a), exporter.Command(a), console.Command(a), dead.Command(a), versionCommand(a)}},
		{"outbox", "Outboxes and their relay:", []*cobra.Command{outbox.Command(a), outbox.PublishCommand(a), relay.Command(a), relay.ServeCommand(a), outbox.TailCommand(a), outbox.ParkedCommand(a),
			outbox.ReplayCommand(a), outbox.SubscriptionCommand(a), adopt.Command(a)}},
		{"queue", "Job queues:", []*cobra.Command{queue.Command(a), queue.EnqueueCommand(a), work.Command(a), queue.JobCommand(a), queue.ScheduleCommand(a)}},
		{"inbox", "Consumers:", []*cobra.Command{inbox.Command(a)}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, verb := range group.verbs {
			verb.GroupID = group.id
		}
		root.AddCommand(group.verbs...)
	}
	describe(root, "penstock")
	a.CompleteNames(root)
	root.SetHelpCommandGroupID("any")
	root.SetCompletionCommandGroupID("any")
	return root
}

// describe gives a command and those below it the help of a page in docs/reference/commands. A new command has none before its page is
// written. TestCommandLineReference compares the pages with the commands.
func describe(cmd *cobra.Command, page string) {
	text, _ := commands.Pages.ReadFile(page + ".md")
	terminal.Describe(cmd, string(text))
	for _, sub := range cmd.Commands() {
		if cmd.HasParent() {
			describe(sub, page)
		} else {
			describe(sub, sub.Name())
		}
	}
}

// run is main with all its dependencies as arguments. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runWith(ctx, cli.New(stdin, stdout, stderr), args)
}

func runWith(ctx context.Context, a *cli.App, args []string) int {
	a.Version = version
	root := rootCommand(a)
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.InitDefaultCompletionCmd() // writes to the writer that is set above
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		// Cobra's own command shows its help for an unknown shell.
		completion.Args = terminal.KnownVerb
		completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	defer a.Close()
	failed, err := root.ExecuteContextC(ctx)
	return a.Report(failed, err)
}
