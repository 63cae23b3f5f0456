// Package doctor has penstock doctor: the verb, what it looks at and prints. What the status
// tells, from two looks, is in rules.go.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/config"
	"github.com/penstock/penstock/internal/cli"
	"github.com/penstock/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/store/postgres/adopt/check"
)

type flags struct {
	sinks        []string
	old, measure cli.Span
	asJSON       bool
	adopting     adopt.Flags
}

func Command(a *cli.App) *cobra.Command {
	f := flags{old: cli.Span(5 * time.Minute), measure: cli.Span(2 * time.Second)}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong, or soon will be, and what to do about it",
		Long: `Look at everything that Penstock depends on, and say of each what was measured, how
grave it is and what to do next:

  the database     that it answers, its version, settings with consequences, free
                   connections, a pooler in between, its clock and ours, its disk
                   (if it is on this machine); of SQLite the file, its journal, who
                   writes, and whether it is damaged
  the schema       its version, functions that somebody has changed, the role's rights
  vacuum           transactions, prepared ones, replication slots and standbys that
                   hold it back
  outboxes         subscriptions that nobody relays, relays that stand still, segments
                   that are not given back and who holds them, parked keys; fetches
                   that read far more than they return, as penstock explain tells
  queues           jobs that no worker takes, leases that ran out, workers that hang
  sinks            those of the configuration file and of --sink: whether they can be
                   reached, and let us in; nothing is sent
  adopted tables   what penstock adopt check finds
  dead letters, and backlogs that grow: how fast, and when the disk is full at that rate

It looks twice, --measure apart, for rates, and for what does not move. What is younger
than --old is no finding, or a lesser one. It changes nothing. Of a file of SQLite it takes
the lock for a moment, to see that it can.

Each finding is ok, a warning (it will cost something, or a person has to decide) or
critical (messages or jobs do not arrive, may be lost, or soon will). The exit code is 0
if nothing is critical, 3 if something is, and 4 if the database could not be looked at.
What the role may not see is told as not-looked-at.

--json prints one line: findings, each with check, severity, about, found, why, next and
measured. The names of checks do not change between versions.`,
		Example: `  penstock doctor --config penstock.yaml
  penstock doctor --database-url postgres://app@localhost/shop --sink amqp://localhost/
  penstock doctor --json | jq -r '.findings[] | select(.severity != "ok") | .check + " " + .found'`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), a, &f) },
	}
	cmd.Flags().StringArrayVar(&f.sinks, "sink", nil, "see whether this sink can be reached, too; may be repeated")
	cmd.Flags().Var(&f.old, "old", "from what age on a transaction, a message that waits or a job that runs is a finding")
	cmd.Flags().Var(&f.measure, "measure", "how long to measure rates, and to wait for something to move")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "one JSON line with every finding")
	f.adopting.Add(cmd.Flags())
	return cmd
}

// report is what is printed.
type report struct {
	Findings []doctor.Finding `json:"findings"`
}

func run(ctx context.Context, a *cli.App, f *flags) error {
	if f.measure <= 0 {
		return cli.Usage(errors.New("--measure is 0: use a time such as 2s"))
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
		e.add(doctor.Finding{Check: doctor.CheckConnection, Severity: doctor.Critical, Found: cli.OneLine(unusable.Error()), Why: "without the database nothing goes on"})
	}
	e.add(reached...)
	doctor.Sort(e.found)
	if err := show(a, report{e.found}, f.asJSON); err != nil {
		return err
	}
	switch critical := doctor.Count(e.found, doctor.Critical); {
	case unusable != nil:
		return &cli.ExitError{Code: cli.ExitDatabase, Err: fmt.Errorf("the database could not be looked at: %w", unusable)}
	case critical > 0:
		return &cli.ExitError{Code: cli.ExitCheck, Err: penstock.WithHint(errors.New(cli.PluralVerb(int64(critical), "critical finding", "needs somebody", "need somebody")), "the report says what to do next")}
	}
	return nil
}

// configured is the configuration file, nil without one, or if --database-url stands in its place.
func configured(a *cli.App) (*config.Config, error) {
	if a.ConfigFile == "" && a.DatabaseURL != "" {
		return nil, nil
	}
	return a.LoadConfig()
}

// sink is one to reach.
type sink struct {
	of string // the subscription's, or "" for that of a flag
	config.Sink
}

func sinksOf(cfg *config.Config, given []string) (all []sink, err error) {
	for _, url := range given {
		s, err := config.ParseSink(url)
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--sink: %w", err))
		}
		all = append(all, sink{"", s})
	}
	if cfg != nil {
		for _, s := range cfg.Subscriptions {
			all = append(all, sink{s.Origin() + "/" + s.Name, s.Sink})
		}
	}
	return all, nil
}

// reachPatience is how long a sink has to let us in.
const reachPatience = 15 * time.Second

func reach(ctx context.Context, s sink) doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	about := strings.TrimPrefix(s.of+" → "+s.Name(), " → ")
	f := doctor.Finding{Check: doctor.CheckSink, Severity: doctor.OK, About: about}
	begun := time.Now()
	tried, err := s.Reach(ctx, slog.New(slog.DiscardHandler))
	took := time.Since(begun)
	switch {
	case !tried:
		f.Found = "there is nothing to connect to"
	case err != nil:
		f.Severity, f.Found = doctor.Critical, cli.OneLine(err.Error())
		f.Why = "nothing is delivered, and the backlog grows; no attempt is spent meanwhile"
		f.Next = "bring it back, or correct its URL and login: a relay goes on by itself"
		if hint, ok := errors.AsType[*penstock.HintError](err); ok {
			f.Found, f.Next = strings.Replace(f.Found, cli.OneLine(hint.Error()), cli.OneLine(hint.Err.Error()), 1), hint.Hint
		}
	default:
		f.Found = "it can be reached, in " + cli.Age(took)
		f.Measured = []doctor.Figure{{Name: "time to connect", Value: took.Seconds(), Unit: "s"}}
	}
	return f
}

// examination looks at a database.
type examination struct {
	app   *cli.App
	cfg   *config.Config
	store penstock.Store
	flags *flags
	o     doctor.Options
	found []doctor.Finding
	upTo  int // 0: count everything
}

// Findings looks at a database as the verb does, but at no sink, and counts up to a thousand of each kind.
func Findings(a *cli.App, store penstock.Store) func(ctx context.Context) ([]doctor.Finding, error) {
	return func(ctx context.Context) ([]doctor.Finding, error) {
		e := &examination{app: a, store: store, flags: &flags{measure: cli.Span(time.Second)}, o: doctor.Options{Old: 5 * time.Minute}, upTo: cli.CountedUpTo}
		err := e.database(ctx)
		doctor.Sort(e.found)
		return e.found, err
	}
}

func (e *examination) add(found ...doctor.Finding) { e.found = append(e.found, found...) }

func (e *examination) has(check string) bool {
	return find(e.found, func(f *doctor.Finding) bool { return f.Check == check && f.Severity == doctor.Critical }) != nil
}

// database looks at all but the sinks. An error means that it cannot be used.
func (e *examination) database(ctx context.Context) error {
	seen := doctor.Examined{Free: -1}
	if e.cfg != nil {
		for i := range e.cfg.Subscriptions {
			e.o.Relays = e.o.Relays || e.cfg.Subscriptions[i].Adopt == nil
		}
	}
	examiner, _ := e.store.(doctor.Examiner)
	if examiner != nil {
		var err error
		seen, err = examiner.Examine(ctx, e.o)
		e.add(seen.Findings...)
		if err != nil {
			return err
		}
	}
	if err := e.horizon(ctx); err != nil {
		return err
	}
	if e.has(doctor.CheckSchema) {
		return e.adopted(ctx, seen)
	}
	before, err := e.look(ctx, seen.Ahead, false)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(e.flags.measure)):
	}
	now, err := e.look(ctx, seen.Ahead, true)
	if err != nil {
		return err
	}
	e.add(compare(before, now, seen.Free, e.o)...)
	e.parkedKeys(ctx, &now)
	e.missing(&now)
	e.plans(ctx, &now)
	return e.adopted(ctx, seen)
}

// plans tells of fetches that read far more than they return. Who may not run the relay is told nothing.
func (e *examination) plans(ctx context.Context, now *look) {
	explainer, ok := e.store.(doctor.Explainer)
	if !ok {
		return
	}
	for i := range now.outboxes {
		found, err := explainer.ExplainOutbox(ctx, now.outboxes[i].Outbox)
		if err != nil && !cli.IsForbidden(err) {
			e.add(doctor.Finding{Check: doctor.CheckNotLookedAt, Severity: doctor.OK, About: "plans of outbox " + now.outboxes[i].Outbox, Found: cli.OneLine(err.Error())})
		}
		for _, s := range found {
			f := doctor.Finding{Check: doctor.CheckPlans, Severity: doctor.OK, About: s.Of, Found: s.Name + " " + s.Verdict}
			if s.Slow {
				f.Severity, f.Why, f.Next = doctor.Warning, "every fetch of the relay costs the server that much", "penstock explain "+now.outboxes[i].Outbox
			}
			if s.Slow || s.Name == "fetch" {
				e.add(f)
			}
		}
	}
}

// look reads the status. What the role may not see is told, if it is to be.
func (e *examination) look(ctx context.Context, ahead time.Duration, tell bool) (l look, err error) {
	l.at = time.Now().Add(ahead)
	unseen := func(what string, err error) error {
		if !cli.IsForbidden(err) {
			return err
		}
		if tell {
			e.add(doctor.Finding{Check: doctor.CheckNotLookedAt, Severity: doctor.OK, About: what, Found: cli.OneLine(err.Error())})
		}
		return nil
	}
	if l.outboxes, err = cli.StatusUpTo(ctx, e.store, e.upTo); err != nil {
		if err = unseen("outboxes", err); err != nil {
			return l, err
		}
	}
	if queues, ok := e.store.(cli.QueueStatusReader); ok {
		if l.queues, err = cli.QueueStatusUpTo(ctx, queues, e.upTo); err != nil {
			if err = unseen("queues", err); err != nil {
				return l, err
			}
		}
	}
	if examiner, ok := e.store.(doctor.Examiner); ok && len(l.queues) > 0 {
		if l.running, err = examiner.Running(ctx); err != nil {
			err = unseen("the jobs that run", err)
		}
	}
	return l, err
}

// parkedKeys names some of the keys that are parked, and why.
func (e *examination) parkedKeys(ctx context.Context, now *look) {
	const most = 3
	for _, o := range now.outboxes {
		for _, s := range o.Subscriptions {
			f := find(e.found, func(f *doctor.Finding) bool {
				return f.Check == doctor.CheckParked && f.About == o.Outbox+"/"+s.Subscription
			})
			if f == nil {
				continue
			}
			keys, err := e.store.ParkedKeys(ctx, o.Outbox, s.Subscription, most)
			if err != nil {
				continue // the figure stands
			}
			for _, k := range keys {
				f.Found += fmt.Sprintf("; %s, attempt %d: %s", cmp.Or(k.Key, "a message without a key"), k.Attempt, k.Err)
			}
		}
	}
}

// missing tells of subscriptions of the configuration that the database does not know.
func (e *examination) missing(now *look) {
	if e.cfg == nil || now.outboxes == nil {
		return
	}
	for i := range e.cfg.Subscriptions {
		s := &e.cfg.Subscriptions[i]
		f := doctor.Finding{Check: doctor.CheckSubscription, About: s.Origin() + "/" + s.Name}
		o := find(now.outboxes, func(o *penstock.OutboxStatus) bool { return o.Outbox == s.Outbox })
		switch {
		case s.Adopt != nil:
			continue
		case o == nil:
			f.Severity, f.Found, f.Next = doctor.Critical, "the configuration names an outbox that is not there", "penstock outbox create "+cli.ShellWord(s.Outbox)
		case find(o.Subscriptions, func(b *penstock.SubscriptionStatus) bool { return b.Subscription == s.Name }) == nil:
			f.Severity, f.Found, f.Next = doctor.Warning, "no relay has ever run it", "start its relay: penstock relay"
			f.Why = "a subscription begins when its relay first runs"
		default:
			continue
		}
		e.add(f)
	}
}

// horizon looks for what holds back vacuum.
func (e *examination) horizon(ctx context.Context) error {
	if url, _, err := e.app.Database(); err != nil || config.NoTables(url) != "" {
		return err
	}
	conn, err := adopt.Connect(ctx, e.app)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	findings, unseen, err := check.Holders(ctx, conn, check.Options{OldSnapshot: e.o.Old})
	if err != nil {
		return err
	}
	e.fromCheck(doctor.CheckHorizon, "", findings, unseen)
	if find(e.found, func(f *doctor.Finding) bool { return f.Check == doctor.CheckHorizon }) == nil {
		e.add(doctor.Finding{Check: doctor.CheckHorizon, Severity: doctor.OK, Found: "nothing old holds back vacuum"})
	}
	return nil
}

// fromCheck adds what adopt check says.
func (e *examination) fromCheck(name, about string, findings []check.Finding, unseen []check.Unseen) {
	for _, f := range findings {
		one := doctor.Finding{Check: name, Severity: doctor.Severity(f.Severity.String()), About: cmp.Or(about, f.Code), Found: f.Title, Why: f.Detail}
		switch {
		case f.Severity == check.Note && name == doctor.CheckAdopted:
			continue
		case f.Severity == check.Note:
			one.Severity = doctor.OK
		}
		if about != "" {
			one.Found += " [" + f.Code + "]"
		}
		var next []string
		for _, s := range f.Fix {
			if !s.Alternative {
				next = append(next, s.SQL)
			}
		}
		one.Next = strings.Join(next, "; ")
		for _, figure := range f.Evidence.Figures {
			one.Measured = append(one.Measured, doctor.Figure{Name: figure.Name, Value: figure.Value, Unit: string(figure.Unit)})
		}
		e.add(one)
	}
	for _, u := range unseen {
		e.add(doctor.Finding{Check: doctor.CheckNotLookedAt, Severity: doctor.OK, About: u.What, Found: u.Why, Next: u.Hint})
	}
}

// adopted looks at the tables that the configuration, or a flag, adopts.
func (e *examination) adopted(ctx context.Context, seen doctor.Examined) error {
	of, err := e.flags.adopting.Named("")
	if err != nil {
		return err
	}
	var all []adopt.Subscription
	if of != nil {
		all = []adopt.Subscription{*of}
	} else if all, err = adopt.Configured(e.app); err != nil || len(all) == 0 {
		return err
	}
	conn, err := adopt.Connect(ctx, e.app)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for i := range all {
		about := cli.Visible(all[i].Config.Table)
		r, err := check.Run(ctx, conn, all[i].Config, check.Options{OldSnapshot: e.o.Old})
		if err != nil {
			if ctx.Err() != nil || conn.IsClosed() {
				return err
			}
			e.add(doctor.Finding{Check: doctor.CheckAdopted, Severity: doctor.Critical, About: about, Found: cli.OneLine(err.Error())})
			continue
		}
		of := r.Findings[:0]
		for _, f := range r.Findings {
			switch f.Code { // those of the database are told once
			case check.CodeOldSnapshot, check.CodePrepared, check.CodeReplicationSlot, check.CodeStandby:
			default:
				of = append(of, f)
			}
		}
		e.fromCheck(doctor.CheckAdopted, about, of, nil)
		if find(e.found, func(f *doctor.Finding) bool { return f.Check == doctor.CheckAdopted && f.About == about }) == nil {
			e.add(doctor.Finding{Check: doctor.CheckAdopted, Severity: doctor.OK, About: about, Found: "its indexes and plans are as they should be"})
		}
		if err := e.adoptedStatus(ctx, &all[i], seen.Ahead); err != nil {
			return err
		}
	}
	return nil
}

// adoptedStatus looks at the subscription over an adopted table, unless none has been run.
func (e *examination) adoptedStatus(ctx context.Context, of *adopt.Subscription, ahead time.Duration) error {
	table, err := adopt.Open(ctx, e.app, of)
	if err != nil {
		return err
	}
	defer table.Close()
	status, err := table.Table.Status(ctx)
	if err != nil {
		return nil // the check has said why, or there is none yet
	}
	r := &rules{now: look{at: time.Now().Add(ahead)}, o: e.o}
	r.subscription(table.Config.Table, table.Argument(), &status, nil)
	e.add(r.found...)
	return nil
}

const columns = 100 // of a line, unless a word is longer

// show prints the report.
func show(a *cli.App, r report, asJSON bool) error {
	if asJSON {
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
				out.WriteString(cli.Wrap(fmt.Sprintf("%-9s %s", first, a.Suggest(cli.Visible(text))), strings.Repeat(" ", 10), columns) + "\n")
			}
		}
		line(string(f.Severity), name+": "+f.Found)
		line("", f.Why)
		if f.Next != "" {
			line("", "next: "+f.Next)
		}
	}
	fmt.Fprintf(&out, "\n%d critical, %s, %d ok\n", doctor.Count(r.Findings, doctor.Critical),
		cli.Plural(int64(doctor.Count(r.Findings, doctor.Warning)), "warning"), doctor.Count(r.Findings, doctor.OK))
	_, err := io.WriteString(a.Stdout, out.String())
	return err
}
