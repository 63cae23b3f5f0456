// Package doctor has penstock doctor: the verb, its examinations and its output. rules.go has the
// findings from two readings of the status.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

type flags struct {
	sinks        []string
	old, measure cli.Span
	adopting     adopt.Flags
}

func Command(a *cli.App) *cobra.Command {
	f := flags{old: cli.Span(5 * time.Minute), measure: cli.Span(2 * time.Second)}
	cmd := terminal.Verb("doctor", "Check database, relays, workers and sinks for problems",
		func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), a, &f) })
	cmd.Flags().StringArrayVar(&f.sinks, "sink", nil, "also check whether the sink at this `url` can be reached; may be repeated")
	cmd.Flags().Var(&f.old, "old", "report transactions, waiting messages and running jobs that are older than this `duration`")
	cmd.Flags().Var(&f.measure, "measure", "`duration` for which rates are measured, and progress is waited for")
	a.WithJSON(cmd, "one JSON line with every finding")
	f.adopting.Add(cmd.Flags())
	return cmd
}

// report is the output.
type report struct {
	Findings []doctor.Finding `json:"findings"`
}

func run(ctx context.Context, a *cli.App, f *flags) error {
	if f.measure <= 0 {
		return terminal.Usage(errors.New("--measure is 0: use a time such as 2s"))
	}
	cfg, err := configured(a)
	if err != nil {
		return err
	}
	sinks, err := sinksOf(cfg, f.sinks)
	if err != nil {
		return err
	}
	store, err := a.OpenStore(ctx)
	if err != nil {
		return err
	}
	e := &examination{app: a, cfg: cfg, store: store, flags: f, o: doctor.Options{Old: time.Duration(f.old)}}
	var probes sync.WaitGroup
	reached := make([]doctor.Finding, len(sinks))
	for i := range sinks {
		probes.Go(func() { reached[i] = reach(ctx, sinks[i]) })
	}
	unusable := e.database(ctx)
	probes.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if unusable != nil {
		e.add(doctor.Finding{Check: doctor.CheckConnection, Severity: doctor.Critical, Found: terminal.OneLine(unusable.Error()), Why: "without the database nothing works"})
	}
	e.add(reached...)
	doctor.Sort(e.found)
	if err := show(a, report{e.found}); err != nil {
		return err
	}
	switch critical := doctor.Count(e.found, doctor.Critical); {
	case unusable != nil:
		return &terminal.ExitError{Code: terminal.ExitDatabase, Err: fmt.Errorf("the database could not be looked at: %w", unusable)}
	case critical > 0:
		return &terminal.ExitError{Code: terminal.ExitCheck, Err: penstock.WithHint(errors.New(terminal.PluralVerb(int64(critical), "critical finding", "needs an operator", "need an operator")), "the report has the next steps")}
	}
	return nil
}

// configured is the configuration file, or nil without one, or if --database-url is given instead.
func configured(a *cli.App) (*config.Config, error) {
	if a.ConfigFile == "" && a.DatabaseURL != "" {
		return nil, nil
	}
	return a.LoadConfig()
}

// sink is a sink to reach, or the store of a claim check.
type sink struct {
	of string // the subscription's, or "" for that of a flag
	config.Sink
	payloads *config.ClaimCheck
}

func sinksOf(cfg *config.Config, given []string) (all []sink, err error) {
	for _, url := range given {
		s, err := config.ParseSink(url)
		if err != nil {
			return nil, terminal.Usage(fmt.Errorf("--sink: %w", err))
		}
		all = append(all, sink{Sink: s})
	}
	if cfg != nil {
		for _, s := range cfg.Subscriptions {
			all = append(all, sink{of: s.Origin() + "/" + s.Name, Sink: s.Sink})
			if s.ClaimCheck != nil {
				all = append(all, sink{of: s.Origin() + "/" + s.Name, payloads: s.ClaimCheck})
			}
		}
	}
	return all, nil
}

// reachPatience is how long a sink may take to accept a connection.
const reachPatience = 15 * time.Second

func reach(ctx context.Context, s sink) doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	about := strings.TrimPrefix(s.of+" → "+cmp.Or(s.Name(), "claim check"), " → ")
	f := doctor.Finding{Check: doctor.CheckSink, Severity: doctor.OK, About: about}
	begun := time.Now()
	tried, warning, err := s.connect(ctx)
	took := time.Since(begun)
	switch {
	case errors.Is(err, fs.ErrPermission):
		f.Severity, f.Found = doctor.Unknown, terminal.OneLine(err.Error())
		f.Next = "permit s3:GetLifecycleConfiguration, or see by hand that a rule deletes old payloads"
	case warning != "":
		f.Severity, f.Found = doctor.Warning, warning
		f.Why, f.Next = "they stay there for ever", "add a rule that deletes them some days after they were written, later than the broker and the consumers need them"
	case !tried:
		f.Found = "there is nothing to connect to"
	case err != nil:
		f.Found, f.Next = problem(err)
		f.Severity, f.Why = doctor.Critical, "nothing is delivered, and the backlog grows; no attempt is spent meanwhile"
		f.Next = cmp.Or(f.Next, "bring it back, or correct its URL and login: a relay then continues")
	default:
		f.Found = "it can be reached, in " + cli.Age(took)
		f.Measured = []doctor.Figure{{Name: "time to connect", Value: took.Seconds(), Unit: "s"}}
	}
	return f
}

func (s *sink) connect(ctx context.Context) (tried bool, warning string, err error) {
	if s.payloads == nil {
		tried, err = s.Reach(ctx, slog.New(slog.DiscardHandler))
		return tried, "", err
	}
	store, err := drivers.OpenClaimCheck(s.payloads.Config)
	if err != nil {
		return true, "", err
	}
	defer store.Close()
	warning, err = store.Reach(ctx)
	return true, warning, err
}

// Findings examines a database as the verb does, without its sinks, and counts up to a thousand of each
// kind.
func Findings(a *cli.App, store driver.Database) func(ctx context.Context) ([]doctor.Finding, error) {
	return func(ctx context.Context) ([]doctor.Finding, error) {
		e := &examination{app: a, store: store, flags: &flags{measure: cli.Span(time.Second)}, o: doctor.Options{Old: 5 * time.Minute}, upTo: cli.CountedUpTo}
		err := e.database(ctx)
		if err != nil && len(e.found) > 0 { // one statement that took too long must not hide the findings before it
			e.add(doctor.Finding{Check: doctor.CheckNotLookedAt, Severity: doctor.Warning, About: "the rest", Found: err.Error(), Why: "the checks behind this one were not made", Next: "penstock doctor"})
			err = nil
		}
		doctor.Sort(e.found)
		return e.found, err
	}
}

const columns = 100 // of a line, unless a word is longer

// show prints the report.
func show(a *cli.App, r report) error {
	if a.JSON {
		return json.NewEncoder(a.Stdout).Encode(r)
	}
	var out strings.Builder
	for i := range r.Findings {
		f := &r.Findings[i]
		name := f.Check
		if f.About != "" {
			name += " " + f.About
		}
		line := func(first, text string) {
			if text != "" {
				out.WriteString(terminal.Wrap(fmt.Sprintf("%-9s %s", first, a.Suggest(shell.Visible(text))), strings.Repeat(" ", 10), columns) + "\n")
			}
		}
		line(string(f.Severity), name+": "+f.Found)
		line("", f.Why)
		if f.Next != "" {
			line("", "next: "+f.Next)
		}
	}
	fmt.Fprintf(&out, "\n%d critical, %s, %d unknown, %d ok\n", doctor.Count(r.Findings, doctor.Critical),
		terminal.Plural(int64(doctor.Count(r.Findings, doctor.Warning)), "warning"), doctor.Count(r.Findings, doctor.Unknown), doctor.Count(r.Findings, doctor.OK))
	_, err := io.WriteString(a.Stdout, out.String())
	return err
}
