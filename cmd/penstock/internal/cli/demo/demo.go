// Package demo has penstock demo.
package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/console"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/demo"
	"github.com/penstock/penstock/internal/redact"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/metrics"
)

type demoFlags struct {
	demo.Config
	csv, console string
	limit        int
	progress     bool
}

// shownRate is slow enough to watch.
const shownRate = 200

func Command(a *cli.App) *cobra.Command {
	var f demoFlags
	cmd := terminal.Verb("demo", "Relay 20,000 real departures and check that none is lost", func(cmd *cobra.Command, _ []string) error {
		if f.console != "" && !cmd.Flags().Changed("rate") {
			f.Rate = shownRate
		}
		return run(a, cmd, f)
	})
	flags := cmd.Flags()
	flags.StringVar(&f.Sink, "sink", "embedded", "`url` of the sink: amqp://…, nats://…, embedded, stdout or discard")
	flags.StringVar(&f.csv, "csv", "", "`file` of flights to use instead of the embedded ones, gzipped or plain, - for stdin")
	flags.IntVar(&f.limit, "limit", 0, "use only this `number` of flights")
	flags.IntVar(&f.Producers, "producers", 1, "`number` of concurrent writers; the flights of one aircraft stay with one of them")
	flags.Float64Var(&f.Rollback, "rollback", 0, "`share` of transactions that publish and then roll back, 0 to 1")
	flags.Float64Var(&f.Rate, "rate", 0, "`number` of transactions that begin each second, 0 for as many as possible")
	flags.StringVar(&f.console, "console", "", "serve the console at this `address` until Ctrl-C")
	flags.Lookup("console").NoOptDefVal = console.Listen
	flags.Uint64Var(&f.Seed, "seed", 1, "`number` that decides which transactions roll back")
	flags.DurationVar(&f.Patience, "patience", time.Minute, "`duration` to wait for deliveries when there are none")
	flags.BoolVar(&f.Keep, "keep", false, "leave tables, queues and files for you to look at")
	a.WithJSON(cmd, "summary as one JSON line")
	flags.BoolVar(&f.progress, "progress", false, "show progress even if stderr is not a terminal")
	return cmd
}

func run(a *cli.App, cmd *cobra.Command, f demoFlags) error {
	ctx := cmd.Context()
	if err := f.validate(); err != nil {
		return err
	}
	a.Stderr.Hide(f.Sink)
	if _, err := config.ParseSink(f.Sink); err != nil {
		return terminal.Usage(fmt.Errorf("--sink: %w", err))
	}
	if !cmd.Flags().Changed("log-level") { // the summary has normal events
		a.LogLevel = "warn"
	}
	flights, err := readFlights(a, f)
	if err != nil {
		return err
	}
	databaseURL, schema, err := a.GivenDatabase()
	if err != nil {
		return err
	}
	a.Stderr.Hide(databaseURL)

	out := a.Stdout
	if a.JSON || f.Sink == "stdout" || f.Sink == "-" {
		out = io.Discard
	}
	database := "a private SQLite file"
	if databaseURL != "" {
		database = redact.Text(databaseURL)
	}
	fmt.Fprintf(out, "%s → outbox on %s → relay → %s → consumer\n", terminal.Plural(int64(len(flights)), "flight"), database, sinkText(f.Sink))

	progress := terminal.NewProgress(a.Stderr, f.progress)
	cfg := f.Config
	cfg.Flights, cfg.DatabaseURL, cfg.Schema, cfg.Log = flights, databaseURL, schema, a.Logger()
	cfg.Progress = func(p demo.Progress) { progress.Show(demoProgress(p)) }
	if f.console != "" {
		defer showing(a, &cfg, f.console, progress.Clear)()
	}
	result, err := demo.Run(ctx, cfg)
	progress.Clear()
	if err != nil {
		return err
	}
	if a.JSON {
		if err := json.NewEncoder(a.Stdout).Encode(demoSummary(&result)); err != nil {
			return err
		}
	} else if f.Sink == "stdout" || f.Sink == "-" {
		writeDemoSummary(a.Stderr, &result, f)
	} else {
		writeDemoSummary(a.Stdout, &result, f)
	}
	if !result.OK() {
		return &terminal.ExitError{Code: terminal.ExitCheck, Err: fmt.Errorf("the check failed: %s", strings.Join(result.Examples, "; "))}
	}
	return nil
}

// showing serves a console for a run, and makes the run end only with ctx.
func showing(a *cli.App, cfg *demo.Config, listen string, clear func()) (end func()) {
	var over *cli.App
	cfg.Metrics = metrics.New(metrics.Options{Logger: cfg.Log})
	cfg.Opened = func(ctx context.Context, url, schema string) error {
		over = a.Over(url, schema)
		c := config.Console{Listen: listen}
		c.SetDefaults()
		at, err := console.Serve(ctx, over, c, cfg.Metrics)
		if err == nil {
			fmt.Fprintf(a.Stderr, "The console is at %s\n", at)
		}
		return err
	}
	cfg.Finished = func(ctx context.Context, r *demo.Result) {
		clear()
		fmt.Fprintf(a.Stderr, "%s of %s arrived; the console stays until Ctrl-C\n", terminal.Count(int64(r.Delivered)), terminal.Plural(int64(r.Published), "flight"))
		<-ctx.Done()
	}
	return func() {
		if over != nil {
			over.Close()
		}
	}
}

func (f *demoFlags) validate() error {
	return cmp.Or(
		cli.Refuse(f.Rate < 0 || math.IsNaN(f.Rate), "--rate is %v: use 1 or more, or 0 for as many as can", f.Rate),
		cli.Refuse(f.Producers < 1, "--producers is %d: use 1 or more", f.Producers),
		cli.Refuse(f.Producers > 1000, "--producers is %d: use at most 1000, each takes a connection", f.Producers),
		cli.Refuse(math.IsNaN(f.Rollback) || f.Rollback < 0 || f.Rollback > 1, "--rollback is %v: use a share from 0 to 1", f.Rollback),
		cli.Refuse(f.limit < 0, "--limit is %d: use 1 or more, or 0 for all", f.limit),
		cli.Refuse(f.Patience <= 0, "--patience is %v: use a time such as 1m", f.Patience))
}

func readFlights(a *cli.App, f demoFlags) ([]demo.Flight, error) {
	if f.csv == "" {
		return demo.Sample(f.limit)
	}
	in, err := a.OpenInput("--csv", f.csv)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	flights, err := demo.ReadFlights(in, f.limit)
	if err != nil {
		return nil, terminal.Usage(fmt.Errorf("--csv %s: %w", f.csv, err))
	}
	return flights, nil
}

func sinkText(sink string) string {
	switch {
	case strings.HasPrefix(sink, "embedded"):
		return "embedded NATS JetStream"
	case strings.Contains(sink, "://"):
		return redact.Text(sink)
	}
	return sink
}

func demoProgress(p demo.Progress) string {
	perSecond := 0.0
	if p.Elapsed > 0 {
		perSecond = float64(p.Delivered) / p.Elapsed.Seconds()
	}
	return fmt.Sprintf("%3d%%  committed %7s  rolled back %6s  delivered %7s  %8s  %6s",
		(p.Committed+p.RolledBack)*100/max(p.Total, 1), terminal.Count(p.Committed), terminal.Count(p.RolledBack), terminal.Count(p.Delivered),
		terminal.Rate(perSecond), cli.Age(p.Elapsed))
}

// demoJSON is the summary for programs.
type demoJSON struct {
	Published         int     `json:"published"`
	RolledBack        int     `json:"rolled_back"`
	Delivered         int     `json:"delivered"`
	Lost              int     `json:"lost"`
	Phantom           int     `json:"phantom"`
	Duplicates        int     `json:"duplicates"`
	OutOfOrder        int     `json:"out_of_order"`
	Seconds           float64 `json:"seconds"`
	MessagesPerSecond float64 `json:"messages_per_second"`
	// The rate of the transactions, that of empty commits, and the limit of the rate.
	WrittenPerSecond float64    `json:"written_per_second"`
	CommitsPerSecond float64    `json:"commits_per_second"`
	BoundedBy        demo.Bound `json:"bounded_by"`
	// Unchecked: the sink cannot be read back.
	Unchecked bool `json:"unchecked,omitempty"`
}

func demoSummary(r *demo.Result) demoJSON {
	return demoJSON{
		Published: r.Published, RolledBack: r.RolledBack, Delivered: r.Delivered, Lost: r.Lost, Phantom: r.Phantom,
		Duplicates: r.Duplicates, OutOfOrder: r.OutOfOrder, Unchecked: r.Unread,
		Seconds: math.Round(r.Elapsed.Seconds()*1000) / 1000, MessagesPerSecond: math.Round(r.PerSecond()),
		WrittenPerSecond: math.Round(r.WrittenPerSecond()), CommitsPerSecond: math.Round(r.CommitsPerSecond), BoundedBy: r.BoundedBy(),
	}
}

func writeDemoSummary(w io.Writer, r *demo.Result, f demoFlags) {
	fmt.Fprintf(w, "\n  committed     %s (%s rolled back)\n", terminal.Count(int64(r.Published)), terminal.Plural(int64(r.RolledBack), "more transaction"))
	fmt.Fprintf(w, "  delivered     %s in %s: %s, from the first transaction to the last message read\n",
		terminal.Count(int64(r.Delivered)), r.Elapsed.Round(10*time.Millisecond), terminal.Rate(r.PerSecond()))
	fmt.Fprintf(w, "  bounded by    %s\n", demoBound(r))
	if r.Unread {
		fmt.Fprintf(w, "\n%s cannot be read back, so losses and order were not checked.\n", f.Sink)
	} else {
		fmt.Fprintf(w, "  lost          %d\n  phantom       %d\n  out of order  %d\n  duplicates    %d\n", r.Lost, r.Phantom, r.OutOfOrder, r.Duplicates)
		switch {
		case r.OK():
			fmt.Fprintln(w, "\nEvery committed flight arrived, in order per aircraft, and nothing that was rolled back did.")
		case r.GaveUp:
			fmt.Fprintf(w, "\nNothing was delivered any more for %s, so the rest counts as lost. It is still in the outbox;\nthe log above shows why the relay was waiting, --patience makes it wait longer.\n", f.Patience)
		default:
			fmt.Fprintln(w, "\nThat must not happen: please report it with this output and the flags.")
		}
	}
	for _, kept := range r.Kept {
		fmt.Fprintf(w, "Kept: %s\n", kept)
	}
	fmt.Fprintf(w, "\nTry next:\n%s", demoNext(f))
}

// demoBound names the limit of the rate, compared with the disk's rate.
func demoBound(r *demo.Result) string {
	what := map[demo.Bound]string{
		demo.BoundByDelivery:   "the relay and the broker: the last transaction had committed long before",
		demo.BoundByRate:       "--rate",
		demo.BoundByCommits:    "commits",
		demo.BoundByStatements: "the statements of the transactions",
	}[r.BoundedBy()]
	return fmt.Sprintf("%s; committed at %s, of the %s that the database takes where nothing else is done",
		what, terminal.Rate(r.WrittenPerSecond()), terminal.Rate(r.CommitsPerSecond))
}

// demoNext suggests features that this run did not show.
func demoNext(f demoFlags) string {
	var next strings.Builder
	if f.Rollback == 0 || f.Producers == 1 {
		next.WriteString("  penstock demo --rollback 0.1 --producers 4     transactions that roll back, concurrent writers\n")
	}
	if strings.HasPrefix(f.Sink, "embedded") {
		next.WriteString("  penstock demo --database-url postgres://… --sink amqp://…     the same on your servers\n")
	}
	next.WriteString("  penstock --help     how to use it for your own tables\n")
	return next.String()
}
