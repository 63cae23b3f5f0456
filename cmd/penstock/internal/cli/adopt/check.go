package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/check"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// checkFlags are those of adopt check.
type checkFlags struct {
	subscription, preset, table string
	timeout, lockTimeout        cli.Span
	fix, progress               bool
	leave                       cli.Consent
}

func checkCommand(a *cli.App) *cobra.Command {
	f := checkFlags{leave: cli.Consent{Undone: "nothing was changed"}}
	cmd := terminal.Verb("check", "Check an existing outbox table and suggest fixes", func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if f.fix {
			if err := a.Possible(f.leave); err != nil {
				return err
			}
		} else if f.leave.Yes {
			return terminal.Usage(errors.New("--yes goes with --fix: checking changes nothing"))
		}
		tables, err := tablesToCheck(a, &f)
		if err != nil {
			return err
		}
		conn, err := Connect(ctx, a)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		return checkTables(ctx, a, conn, tables, &f)
	})
	flags := cmd.Flags()
	flags.StringVar(&f.subscription, "subscription", "", "`name` of the subscription in the configuration file whose table is checked (default: all adopted tables)")
	flags.StringVar(&f.preset, "preset", "", "`preset` that describes the table: "+strings.Join(adopted.PresetNames(), ", "))
	flags.StringVar(&f.table, "table", "", "`table` or schema.table, with --preset (default: the preset's)")
	flags.Var(&f.timeout, "timeout", "`duration` that each look at the database may take (default 5s)")
	flags.BoolVar(&f.fix, "fix", false, "create the indexes that are missing; asks before each")
	flags.Var(&f.lockTimeout, "lock-timeout", "with --fix: `duration` to wait for open transactions (default 1m)")
	flags.BoolVar(&f.leave.Yes, "yes", false, "with --fix: do not ask")
	a.WithJSON(cmd, "one JSON line per table")
	flags.BoolVar(&f.progress, "progress", false, "show progress even if stderr is not a terminal")
	return cmd
}

// tablesToCheck are the tables that the flags choose.
func tablesToCheck(a *cli.App, f *checkFlags) ([]adopted.Config, error) {
	if f.preset != "" || f.table != "" {
		switch {
		case f.subscription != "":
			return nil, terminal.Usage(errors.New("--subscription is given with --preset or --table: it is for a configuration file, which describes the table"))
		case f.preset == "":
			return nil, terminal.Usage(fmt.Errorf("--table is given without --preset: name its columns with one of %s, or map them in a configuration file", strings.Join(adopted.PresetNames(), ", ")))
		}
		c := adopted.Config{Preset: f.preset, Table: f.table}
		c.SetDefaults()
		return []adopted.Config{c}, terminal.Usage(c.Validate())
	}
	cfg, err := a.LoadConfig()
	if err != nil {
		return nil, err
	}
	if cfg == nil {
		return nil, terminal.Misuse(errors.New("no table is given: pass --preset and --table, or --config penstock.yaml"))
	}
	var tables []adopted.Config
	var names []string
	for _, s := range cfg.Subscriptions {
		if s.Adopt == nil {
			continue
		}
		names = append(names, shell.Visible(s.Name))
		if f.subscription == "" || s.Name == f.subscription {
			tables = append(tables, s.Adopt.Config)
		}
	}
	switch {
	case len(names) == 0:
		return nil, terminal.Usage(errors.New("the configuration adopts no table: pass --preset and --table, or describe one under adopt"))
	case len(tables) == 0:
		return nil, terminal.Usage(fmt.Errorf("--subscription %q adopts no table in the configuration; those that do are %s", f.subscription, strings.Join(names, ", ")))
	}
	return tables, nil
}

// Connect opens a separate connection to PostgreSQL, for statements that no store runs.
func Connect(ctx context.Context, a *cli.App) (*pgx.Conn, error) {
	url, _, err := a.Database()
	if err != nil {
		return nil, err
	}
	a.Stderr.Hide(url)
	parsed, err := pgx.ParseConfig(url)
	switch {
	case drivers.NotPostgres(url) != "":
		return nil, terminal.Usage(errors.New("tables are checked in PostgreSQL, and this database is " + drivers.NotPostgres(url) + ": write postgres://user:password@host:5432/database"))
	case err != nil:
		return nil, terminal.Usage(pgerror.URL(err))
	}
	pgerror.Speak(&parsed.Config)
	if parsed.ConnectTimeout == 0 {
		parsed.ConnectTimeout = 10 * time.Second
	}
	parsed.RuntimeParams["application_name"] = "penstock"
	conn, err := pgx.ConnectConfig(ctx, parsed)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return conn, nil
}

// checkedJSON has the findings of a table, and the fixes.
type checkedJSON struct {
	check.Report
	Fixed []check.Fixed `json:"fixed,omitempty"`
	// After is how many findings of each severity remain, with --fix.
	After map[check.Severity]int `json:"after,omitempty"`
}

func checkTables(ctx context.Context, a *cli.App, conn *pgx.Conn, tables []adopted.Config, f *checkFlags) error {
	var unclean []string
	for i, table := range tables {
		report, err := check.Run(ctx, conn, table, check.Options{Timeout: time.Duration(f.timeout)})
		if err != nil {
			return err
		}
		checked := checkedJSON{Report: report}
		if !a.JSON {
			if i > 0 {
				fmt.Fprintln(a.Stdout)
			}
			if err := report.WriteText(a.Stdout); err != nil {
				return err
			}
		}
		if f.fix {
			if err := fixTable(ctx, a, conn, table, &checked, f); err != nil {
				return err
			}
		}
		if a.JSON {
			if err := json.NewEncoder(a.Stdout).Encode(checked); err != nil {
				return err
			}
		}
		left := counts(&report)
		if checked.After != nil {
			left = checked.After
		}
		if n := left[check.Critical] + left[check.Warning]; n > 0 {
			unclean = append(unclean, fmt.Sprintf("%s.%s has %s to act on", shell.Visible(report.Table.Schema), shell.Visible(report.Table.Name), terminal.Plural(int64(n), "finding")))
		}
	}
	if len(unclean) > 0 {
		return &terminal.ExitError{Code: terminal.ExitCheck, Err: penstock.WithHint(errors.New(strings.Join(unclean, ", ")), "the report has the statements to run; --fix creates missing indexes")}
	}
	return nil
}

func counts(r *check.Report) map[check.Severity]int {
	return map[check.Severity]int{check.Critical: r.Count(check.Critical), check.Warning: r.Count(check.Warning), check.Note: r.Count(check.Note)}
}

// fixTable creates missing indexes, and checks again if it has created any.
func fixTable(ctx context.Context, a *cli.App, conn *pgx.Conn, table adopted.Config, checked *checkedJSON, f *checkFlags) error {
	p := terminal.NewProgress(a.Stderr, f.progress)
	var refused error // a question to answer
	fixed, err := check.Fix(ctx, conn, checked.Report, check.FixOptions{
		LockTimeout: time.Duration(f.lockTimeout),
		Progress:    func(at check.Progress) { p.Show(progressText(at)) },
		Ask: func(s check.Statement) bool {
			p.Clear()
			if refused != nil {
				return false
			}
			var agreed bool
			agreed, refused = a.Agrees(ctx, f.leave, "\n"+shell.Visible(s.SQL)+";\n"+riskText(s)+"Run it?")
			return agreed
		},
	})
	p.Clear()
	checked.Fixed = fixed
	created := 0
	for _, x := range fixed {
		if x.Outcome == check.Created {
			created++
		}
		if !a.JSON {
			fmt.Fprintf(a.Stdout, "\nindex %s: %s%s\n", shell.Visible(x.Statement.Creates.Name), x.Outcome, tookText(x))
		}
	}
	switch {
	case err != nil:
		return err
	case refused != nil:
		return refused
	case len(fixed) == 0 && !a.JSON:
		fmt.Fprintln(a.Stdout, "\nNo index is missing: the other steps are yours.")
	}
	if created == 0 {
		return nil
	}
	after, err := check.Run(ctx, conn, table, check.Options{Timeout: time.Duration(f.timeout)})
	if err != nil {
		return fmt.Errorf("checking again: %w", err)
	}
	checked.After = counts(&after)
	if !a.JSON {
		fmt.Fprintf(a.Stdout, "Left now: %d critical, %s, %s.\n", after.Count(check.Critical), terminal.Plural(int64(after.Count(check.Warning)), "warning"), terminal.Plural(int64(after.Count(check.Note)), "note"))
	}
	return nil
}

func riskText(s check.Statement) string {
	if s.Risk == "" {
		return ""
	}
	return shell.Visible(s.Risk) + "\n"
}

func tookText(f check.Fixed) string {
	if f.Outcome != check.Created {
		return ""
	}
	return " in " + cli.Age(f.Took)
}

func progressText(p check.Progress) string {
	text := shell.Visible(p.Index.Name) + ": " + p.Phase
	if p.Total > 0 {
		text += fmt.Sprintf(", %s of %s", terminal.Count(p.Done), terminal.Count(p.Total))
	}
	if p.WaitsFor != 0 {
		text += fmt.Sprintf(", waits for session %d", p.WaitsFor)
	}
	return text
}
