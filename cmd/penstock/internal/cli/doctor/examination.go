package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/check"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// examination looks at a database.
type examination struct {
	app   *cli.App
	cfg   *config.Config
	store driver.Database
	flags *flags
	o     doctor.Options
	found []doctor.Finding
	upTo  int // 0: count everything
}

func (e *examination) add(found ...doctor.Finding) { e.found = append(e.found, found...) }

// notSeen reports an examination that was not possible, and which right is missing.
func (e *examination) notSeen(what string, err error) {
	f := doctor.Finding{Check: doctor.CheckNotLookedAt, Severity: doctor.Unknown, About: what}
	f.Found, f.Next = problem(err)
	if pgerror.IsForbidden(err) && !e.has(doctor.CheckPermissions) {
		f.Why = doctor.NotItsWork
	}
	e.add(f)
}

// problem is an error in one line, and its next step if it has one.
func problem(err error) (found, next string) {
	found = terminal.OneLine(err.Error())
	if hint, ok := errors.AsType[*penstock.HintError](err); ok {
		found, next = strings.Replace(found, terminal.OneLine(hint.Error()), terminal.OneLine(hint.Err.Error()), 1), hint.Hint
	}
	return found, next
}

func (e *examination) has(check string) bool {
	return find(e.found, func(f *doctor.Finding) bool { return f.Check == check && f.Severity == doctor.Critical }) != nil
}

// database examines everything but the sinks. An error means that the database cannot be used.
func (e *examination) database(ctx context.Context) error {
	seen := doctor.Examined{Free: -1}
	if e.cfg != nil {
		for i := range e.cfg.Subscriptions {
			e.o.Relays = e.o.Relays || e.cfg.Subscriptions[i].Adopt == nil
		}
		for i := range e.cfg.Workers {
			e.o.Works = append(e.o.Works, e.cfg.Workers[i].Queue)
		}
		defer e.configured()
	}
	defer func() { e.nameOwner(seen.Owner) }()
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
	if err := e.holdingJobs(ctx); err != nil {
		return err
	}
	e.parkedKeys(ctx, &now)
	e.missing(&now)
	e.unnamed(&now)
	e.unchosen(ctx)
	e.kinds(ctx)
	e.causes(ctx, &now)
	if err := e.jobs(ctx, &now); err != nil {
		return err
	}
	e.plans(ctx, &now)
	return e.adopted(ctx, seen)
}

// nameOwner adds the name to next steps for the owner of the tables, whose command lines then have that role.
func (e *examination) nameOwner(owner string) {
	const role = "as the owner of the tables"
	for i := range e.found {
		if owner != "" {
			e.found[i].Next = strings.Replace(e.found[i].Next, role, role+", "+owner+",", 1)
		}
	}
}

// plans reports fetches that read far more than they return.
func (e *examination) plans(ctx context.Context, now *look) {
	explainer, ok := e.store.(doctor.Explainer)
	if !ok {
		return
	}
	for i := range now.outboxes {
		found, err := explainer.ExplainOutbox(ctx, now.outboxes[i].Outbox)
		if err != nil {
			e.notSeen("plans of outbox "+now.outboxes[i].Outbox, err)
		}
		for _, s := range found {
			f := doctor.Finding{Check: doctor.CheckPlans, Severity: doctor.OK, About: s.Of, Found: s.Name + " " + s.Verdict}
			if s.Slow {
				f.Severity, f.Why, f.Next = doctor.Warning, "every fetch of the relay costs the server that much", "penstock explain "+shell.Word(now.outboxes[i].Outbox)
			}
			if s.Slow || s.Name == "fetch" {
				e.add(f)
			}
		}
	}
}

// look reads the status. If asked to, it reports the parts that the role may not see.
func (e *examination) look(ctx context.Context, ahead time.Duration, tell bool) (l look, err error) {
	l.at = time.Now().Add(ahead)
	_, l.beats = e.store.(driver.WorkerStore)
	unseen := func(what string, err error) error {
		if !pgerror.IsForbidden(err) {
			return err
		}
		if tell {
			e.notSeen(what, err)
		}
		return nil
	}
	if l.outboxes, err = cli.StatusUpTo(ctx, e.store, e.upTo); err != nil {
		if err = unseen("outboxes", err); err != nil {
			return l, err
		}
	}
	if l.queues, err = e.store.QueueStatusUpTo(ctx, e.upTo); err != nil {
		if err = unseen("queues", err); err != nil {
			return l, err
		}
	}
	if queues, ok := e.store.(cli.UnreadQueuesReader); ok && tell && l.queues != nil {
		names, err := queues.UnreadQueues(ctx)
		if err = cmp.Or(err, pgerror.UnreadQueues(names)); err != nil {
			e.notSeen("queues", err)
		}
	}
	examiner, ok := e.store.(doctor.Examiner)
	switch {
	case len(l.queues) == 0:
		l.running = []doctor.Running{}
	case ok:
		if l.running, err = examiner.Running(ctx, "", 100); err != nil {
			l.refused = pgerror.IsForbidden(err)
			if err = unseen("the jobs that run", err); err != nil {
				return l, err
			}
			break
		}
		l.running = append([]doctor.Running{}, l.running...)
	case tell:
		e.add(doctor.Finding{Check: doctor.CheckNotLookedAt, Severity: doctor.Unknown, About: "the jobs that run", Found: "in this database Penstock does not list them"})
	}
	if tell {
		if err = cli.ReadUntaken(ctx, e.store, l.queues, min(young, e.o.Old)); err != nil {
			return l, err
		}
		l.alive, l.unseen, err = cli.Alive(ctx, e.store, l.queues, min(young, e.o.Old), l.at)
	}
	return l, err
}

// parkedKeys names some of the parked keys, with the reasons.
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
				continue // the count is enough
			}
			for _, k := range keys {
				f.Found += "; " + cmp.Or(k.Key, "a message without a key")
				if k.Attempt > 0 {
					f.Found += fmt.Sprintf(", attempt %d", k.Attempt)
				}
				if k.Err != "" {
					f.Found += ": " + k.Err
				}
			}
		}
	}
}

// missing reports subscriptions of the configuration that the database does not have.
func (e *examination) missing(now *look) {
	if e.cfg == nil || now.outboxes == nil {
		return
	}
	for i := range e.cfg.Subscriptions {
		s := &e.cfg.Subscriptions[i]
		f := doctor.Finding{Check: doctor.CheckSubscription, About: s.Origin() + "/" + s.Name}
		o := find(now.outboxes, func(o *admin.OutboxStatus) bool { return o.Outbox == s.Outbox })
		switch {
		case s.Adopt != nil:
			continue
		case o == nil:
			f.Severity, f.Found, f.Next = doctor.Critical, "the configuration names an outbox that is not there", "penstock outbox create "+shell.Word(s.Outbox)
		case find(o.Subscriptions, func(b *admin.SubscriptionStatus) bool { return b.Subscription == s.Name }) == nil:
			f.Severity, f.Found, f.Next = doctor.Warning, "no relay has ever run it", e.startRelay()
			f.Why = "a subscription begins when its relay first runs"
			if o.UnreadAge > 0 {
				f.Found += ", and messages wait" + oldest(o.UnreadAge)
				e.found = slices.DeleteFunc(e.found, func(of doctor.Finding) bool { return of.Check == doctor.CheckSubscription && of.About == o.Outbox })
			}
		default:
			continue
		}
		e.add(f)
	}
}

func (e *examination) startRelay() string {
	return "start its relay: penstock relay --config " + shell.Word(cmp.Or(e.app.ConfigFile, cli.DefaultConfigFile))
}

// configured names the relay of the configuration as the only next step for subscriptions that it has: they are needed.
func (e *examination) configured() {
	for i := range e.found {
		f := &e.found[i]
		if f.Check == doctor.CheckSubscription && strings.HasPrefix(f.Next, startRelay) &&
			slices.ContainsFunc(e.cfg.Subscriptions, func(s config.Subscription) bool { return s.Origin()+"/"+s.Name == f.About }) {
			f.Next = e.startRelay()
		}
	}
}

// unnamed extends findings about a subscription that is not in the configuration, although others of its outbox are. A renamed
// subscription has left parked messages and dead letters behind.
func (e *examination) unnamed(now *look) {
	if e.cfg == nil {
		return
	}
	for _, o := range now.outboxes {
		has := func(name string) bool {
			return slices.ContainsFunc(e.cfg.Subscriptions, func(s config.Subscription) bool { return s.Outbox == o.Outbox && (name == "" || s.Name == name) })
		}
		for _, s := range o.Subscriptions {
			if !has("") || has(s.Subscription) {
				continue
			}
			for i := range e.found {
				f := &e.found[i]
				if f.About == o.Outbox+"/"+s.Subscription && f.Severity != doctor.OK {
					f.Found += "; the configuration has no such subscription: it has another name now, or its relay another configuration"
				}
			}
		}
	}
}

// unchosen reports how many of the first hundred dead letters the subscription's filter does not choose: it has become narrower since.
func (e *examination) unchosen(ctx context.Context) {
	if e.cfg == nil {
		return
	}
	const most = 100
	for i := range e.cfg.Subscriptions {
		s := &e.cfg.Subscriptions[i]
		about := s.Origin() + "/" + s.Name
		f := find(e.found, func(f *doctor.Finding) bool { return f.Check == doctor.CheckDead && f.About == about })
		if f == nil || s.Adopt != nil || s.Filter.Empty() {
			continue
		}
		dead, err := e.store.DeadLetters(ctx, admin.DeadLetterQuery{Outbox: s.Outbox, Subscription: s.Name, Limit: most, Bytes: 1 << 20})
		if err != nil {
			continue // the count is enough
		}
		passed := int64(0)
		for j := range dead {
			if !s.Filter.Match(&dead[j].Message) {
				passed++
			}
		}
		if passed > 0 {
			f.Found += fmt.Sprintf("; the filter does not choose %d of the first %d: sent back, they are passed over, not delivered", passed, len(dead))
		}
	}
}

// holdingJobs names the transactions that may hold the jobs of a worker that lives and gets none.
func (e *examination) holdingJobs(ctx context.Context) error {
	is := func(f *doctor.Finding) bool {
		return f.Check == doctor.CheckQueue && strings.Contains(f.Found, getsNone)
	}
	if find(e.found, is) == nil {
		return nil
	}
	holders, _, err := e.holders(ctx, min(young, e.o.Old))
	if err != nil {
		return err
	}
	holders = slices.DeleteFunc(holders, func(f check.Finding) bool { return f.Code != check.CodeOldSnapshot && f.Code != check.CodePrepared })
	if len(holders) == 0 {
		return nil
	}
	of := &examination{}
	of.fromCheck(doctor.CheckHorizon, "", holders, nil)
	for i := range e.found {
		if f := &e.found[i]; is(f) {
			f.Found, f.Why = f.Found+"; "+of.found[0].Found, "that transaction may hold them"
			f.Next = "end it if it should not be open: " + of.found[0].Next
		}
	}
	return nil
}

// holders are the transactions, slots and standbys that hold back vacuum; none where there is no PostgreSQL.
func (e *examination) holders(ctx context.Context, old time.Duration) (findings []check.Finding, unseen []check.Unseen, err error) {
	if url, _, err := e.app.Database(); err != nil || drivers.NotPostgres(url) != "" {
		return nil, nil, err
	}
	conn, err := adopt.Connect(ctx, e.app)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return check.Holders(ctx, conn, check.Options{OldSnapshot: old})
}

// horizon reports the holders of vacuum's horizon.
func (e *examination) horizon(ctx context.Context) error {
	if url, _, err := e.app.Database(); err != nil || drivers.NotPostgres(url) != "" {
		return err
	}
	findings, unseen, err := e.holders(ctx, e.o.Old)
	if err != nil {
		return err
	}
	e.fromCheck(doctor.CheckHorizon, "", findings, unseen)
	if len(unseen) == 0 && find(e.found, func(f *doctor.Finding) bool { return f.Check == doctor.CheckHorizon }) == nil {
		e.add(doctor.Finding{Check: doctor.CheckHorizon, Severity: doctor.OK, Found: "nothing old holds back vacuum"})
	}
	return nil
}

// fromCheck adds the findings of adopt check.
func (e *examination) fromCheck(name, about string, findings []check.Finding, unseen []check.Unseen) {
	for _, f := range findings {
		one := doctor.Finding{Check: name, Severity: f.Severity, About: cmp.Or(about, f.Code), Found: f.Title, Why: f.Detail}
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
			if !s.Alternative && one.Severity != doctor.OK {
				sql := s.SQL
				if s.By != "" {
					sql += ", " + s.By
				}
				if s.Risk != "" && name == doctor.CheckHorizon {
					sql += " (" + s.Risk + ")"
				}
				next = append(next, sql)
			}
		}
		one.Next = strings.Join(next, "; ")
		for _, figure := range f.Evidence.Figures {
			one.Measured = append(one.Measured, doctor.Figure(figure))
		}
		e.add(one)
	}
	for _, u := range unseen {
		e.add(doctor.Finding{Check: doctor.CheckNotLookedAt, Severity: doctor.Unknown, About: u.What, Found: u.Why, Next: u.Hint})
	}
}

// adopted examines the tables that the configuration, or a flag, adopts.
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
	url, _, err := e.app.Database()
	if err != nil {
		return err
	}
	if drivers.NotPostgres(url) != "" { // its relay refuses misfits, and PostgreSQL the rest
		for i := range all {
			if err := e.adoptedStatus(ctx, &all[i], seen.Ahead); err != nil {
				return err
			}
		}
		return nil
	}
	conn, err := adopt.Connect(ctx, e.app)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for i := range all {
		about := shell.Visible(all[i].Config.Table)
		r, err := check.Run(ctx, conn, all[i].Config, check.Options{OldSnapshot: e.o.Old})
		if err != nil {
			if ctx.Err() != nil || conn.IsClosed() {
				return err
			}
			e.add(doctor.Finding{Check: doctor.CheckAdopted, Severity: doctor.Critical, About: about, Found: terminal.OneLine(err.Error())})
			continue
		}
		of := r.Findings[:0]
		for _, f := range r.Findings {
			switch f.Code { // findings about the database are reported once
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

// adoptedStatus examines the subscription over an adopted table, unless no relay has run for one.
func (e *examination) adoptedStatus(ctx context.Context, of *adopt.Subscription, ahead time.Duration) error {
	table, err := adopt.Open(ctx, e.app, of)
	if err != nil {
		return err
	}
	defer table.Close()
	status, err := table.Adopted.Status(ctx)
	if err != nil {
		return nil // the check has reported why, or there is none yet
	}
	r := &rules{now: look{at: time.Now().Add(ahead)}, o: e.o}
	r.subscription(table.Config.Table, table.Argument(), &status, nil)
	e.add(r.found...)
	return nil
}

// jobs reports jobs that fail and are tried again, kinds without a worker, schedules that no worker fires, and barriers that no program seals.
func (e *examination) jobs(ctx context.Context, now *look) error {
	told := map[string]bool{}
	for i := range now.queues {
		found, refused, err := cli.Troubles(ctx, e.store, &now.queues[i], e.o.Old, now.at)
		if err != nil {
			return err
		}
		for _, what := range slices.Sorted(maps.Keys(refused)) {
			if !told[what] {
				e.notSeen(what, refused[what])
			}
			told[what] = true
		}
		e.add(found...)
		e.paused(ctx, now.queues[i].Queue)
	}
	return nil
}

// paused names the schedules of a queue that someone has paused. They are as intended.
func (e *examination) paused(ctx context.Context, queue string) {
	all, err := e.store.Schedules(ctx, queue)
	if err != nil {
		return // dropped meanwhile, or the role may not
	}
	var names []string
	for _, s := range all {
		if s.Paused {
			names = append(names, s.Name)
		}
	}
	if len(names) > 0 {
		e.add(doctor.Finding{Check: doctor.CheckSchedules, Severity: doctor.OK, About: queue, Found: "paused: " + strings.Join(names, ", "),
			Measured: []doctor.Figure{{Name: "paused", Value: float64(len(names))}}})
	}
}

// kinds names those that no worker has taken, among the dead letters of queues.
func (e *examination) kinds(ctx context.Context) {
	const most = 1000
	for i := range e.found {
		f := &e.found[i]
		if f.Check != doctor.CheckDead || f.Severity == doctor.OK {
			continue
		}
		dead, err := e.store.DeadJobs(ctx, admin.DeadJobQuery{Queue: f.About, Error: "no handler for kind", Limit: most, Bytes: 1 << 20})
		if err != nil || len(dead) == 0 {
			continue // a subscription, or the count is enough
		}
		of := map[string]int{}
		for j := range dead {
			of[dead[j].Job.Kind()]++
		}
		f.Found += "; " + cli.NoHandlerFor(of)
	}
}

// causes names the error that most dead letters of a queue or of an outbox's subscription have.
func (e *examination) causes(ctx context.Context, now *look) {
	const most = 1000
	add := func(about string, causes []admin.DeadCause, err error) {
		f := find(e.found, func(f *doctor.Finding) bool { return f.Check == doctor.CheckDead && f.About == about })
		if err != nil || len(causes) == 0 || f == nil {
			return // the count is enough
		}
		seen, of := int64(0), "the error"
		for _, c := range causes {
			seen += c.Letters
		}
		if len(causes) > 1 {
			of = fmt.Sprintf("the most frequent error, of %d of the first %d", causes[0].Letters, seen)
		}
		f.Found += fmt.Sprintf("; %s: %s", of, terminal.OneLine(causes[0].Error))
	}
	if store, ok := e.store.(driver.CauseCounter); ok {
		for _, o := range now.outboxes {
			for _, s := range o.Subscriptions {
				if s.DeadLetters > 0 {
					found, err := store.DeadLetterCauses(ctx, admin.DeadLetterQuery{Outbox: o.Outbox, Subscription: s.Subscription, Limit: most})
					add(o.Outbox+"/"+s.Subscription, found, err)
				}
			}
		}
	}
	if store, ok := e.store.(driver.JobCauseCounter); ok {
		for i := range now.queues {
			if q := &now.queues[i]; q.DeadLetters > 0 {
				found, err := store.DeadJobCauses(ctx, admin.DeadJobQuery{Queue: q.Queue, Limit: most})
				add(q.Queue, found, err)
			}
		}
	}
}
