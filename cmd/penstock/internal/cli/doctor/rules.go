package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// look is the status at one moment, by the database's clock. A part that a role may not see is nil:
// outboxes, queues, running jobs.
type look struct {
	at       time.Time
	outboxes []admin.OutboxStatus
	queues   []admin.QueueStatus
	running  []doctor.Running
	refused  bool // the role may not see the leases of jobs, nor failures in the maintenance of queues
	alive    []admin.Worker
	unseen   bool // the role may not see these
	beats    bool // the database keeps the workers
}

const (
	young   = 10 * time.Second // a younger one may be about to be taken
	burst   = 30 * time.Second // a backlog whose oldest is younger may be gone in a moment
	unnamed = "a worker without a name"
)

// rules compare two looks at the same database.
type rules struct {
	before, now look
	over        time.Duration // between the two
	free        int64         // free bytes of the disk, -1 if unknown
	o           doctor.Options
	found       []doctor.Finding
}

func compare(before, now look, free int64, o doctor.Options) []doctor.Finding {
	r := &rules{before: before, now: now, free: free, o: o, over: max(now.at.Sub(before.at), time.Millisecond)}
	if now.outboxes != nil {
		subscriptions := 0
		for i := range now.outboxes {
			subscriptions += len(now.outboxes[i].Subscriptions)
			r.outbox(&now.outboxes[i])
		}
		r.inOrder(doctor.CheckSubscription, fmt.Sprintf("of %s none has a backlog without a relay", terminal.Plural(int64(subscriptions), "subscription")))
		r.inOrder(doctor.CheckRelay, "no relay stands still, and none says that its sink is down")
		r.inOrder(doctor.CheckParked, "no key is parked")
	}
	if now.queues != nil {
		for i := range now.queues {
			r.queue(&now.queues[i])
			r.workers(&now.queues[i])
		}
		if now.refused { // a job whose worker died counts as running until another one takes it over
			f := doctor.Finding{Check: doctor.CheckQueue, Severity: doctor.Unknown, Found: "this role may not see whether jobs that count as running still have a worker, nor whether space is not given back",
				Next: "connect as the owner of the schema: no grant shows it"}
			for i := range now.queues {
				if q := &now.queues[i]; q.Ready > 0 && q.Running > 0 && q.OldestAge >= min(young, o.Old) {
					f.Found += fmt.Sprintf("; in %s %s running, and %s, the oldest for %s", q.Queue, terminal.PluralVerb(q.Running, "job", "counts as", "count as"),
						terminal.PluralVerb(q.Ready, "job", "is ready", "are ready"), cli.Age(q.OldestAge))
				}
			}
			r.add(f)
		}
		r.inOrder(doctor.CheckQueue, fmt.Sprintf("of %s none is left alone or in trouble", terminal.Plural(int64(len(now.queues)), "queue")))
		if now.running != nil {
			r.inOrder(doctor.CheckWorkers, "no worker hangs, and no lease has run out")
		}
	}
	switch {
	case now.outboxes != nil && now.queues != nil:
		r.inOrder(doctor.CheckDead, "there are no dead letters")
		r.inOrder(doctor.CheckBacklog, "no backlog grows at present")
	case now.outboxes != nil:
		r.inOrder(doctor.CheckDead, "outboxes have no dead letters")
		r.inOrder(doctor.CheckBacklog, "no outbox's backlog grows at present")
	case now.queues != nil:
		r.inOrder(doctor.CheckDead, "queues have no dead letters")
		r.inOrder(doctor.CheckBacklog, "no queue's backlog grows at present")
	}
	return r.found
}

func (r *rules) add(f doctor.Finding) { r.found = append(r.found, f) }

// inOrder adds a line for a check without findings.
func (r *rules) inOrder(check, text string) {
	if !slices.ContainsFunc(r.found, func(f doctor.Finding) bool { return f.Check == check }) {
		r.add(doctor.Finding{Check: check, Severity: doctor.OK, Found: text})
	}
}

func (r *rules) outbox(o *admin.OutboxStatus) {
	if o.UnreadAge > 0 {
		r.add(doctor.Finding{Check: doctor.CheckSubscription, Severity: doctor.Warning, About: o.Outbox,
			Found: "no relay has ever run for it, and its messages wait" + oldest(o.UnreadAge),
			Why:   "a subscription begins when its relay first runs",
			Next: startRelay + ": " + cli.RelayCommand(o.Outbox) +
				", or drop the outbox as the owner of the tables if it is not needed: penstock outbox drop " + shell.Word(o.Outbox),
			Measured: []doctor.Figure{{Name: "oldest", Value: o.UnreadAge.Seconds(), Unit: "s"}}})
	}
	was := find(r.before.outboxes, func(b *admin.OutboxStatus) bool { return b.Outbox == o.Outbox })
	for i := range o.Subscriptions {
		s := &o.Subscriptions[i]
		var before *admin.SubscriptionStatus
		if was != nil {
			before = find(was.Subscriptions, func(b *admin.SubscriptionStatus) bool { return b.Subscription == s.Subscription })
		}
		r.subscription(o.Outbox, shell.Word(o.Outbox)+" --subscription "+shell.Word(s.Subscription), s, before)
		if before != nil {
			r.growth(o.Outbox+"/"+s.Subscription, s.Backlog-before.Backlog, s.Backlog, s.OldestAge, o.Bytes-was.Bytes, "see its relay and its rate: penstock status "+shell.Word(o.Outbox)+" --watch")
		}
	}
}

// subscription examines one of an outbox or of an adopted table. argument names it on a command line.
func (r *rules) subscription(of, argument string, s, before *admin.SubscriptionStatus) {
	f := doctor.Finding{About: of + "/" + s.Subscription, Severity: doctor.Critical,
		Measured: []doctor.Figure{{Name: "waiting", Value: float64(s.Backlog + s.Parked)}, {Name: "oldest", Value: s.OldestAge.Seconds(), Unit: "s"}}}
	waiting := atLeast(s.AtLeast) + terminal.PluralVerb(s.Backlog+s.Parked, "message", "waits", "wait") + oldest(s.OldestAge)
	held := cli.IsHeld(s, r.now.at)
	switch {
	case !held && s.Backlog+s.Parked > 0:
		f.Check, f.Severity = doctor.CheckSubscription, since(s.OldestAge, r.o.Old)
		f.Found = "no relay reads it, and " + waiting
		if s.Holder != "" {
			f.Found += fmt.Sprintf("; the lease of %s ended %s ago", s.Holder, cli.Since(s.LeaseUntil, r.now.at))
		}
		f.Why = "its messages are not delivered, and unsettled ones keep their space"
		f.Next = startRelay
		if strings.Contains(argument, " --subscription ") {
			f.Next += ": penstock relay --outbox " + argument + " --sink URL"
		}
		f.Next += ", or drop it as the owner of the tables if it is not needed: penstock subscription drop " + strings.Replace(argument, " --subscription ", " ", 1)
		r.add(f)
	case held && !s.SinkDown.IsZero():
		f.Check = doctor.CheckRelay
		f.Found = fmt.Sprintf("its sink has taken nothing for %s: %s; %s", cli.Since(s.SinkDown, r.now.at), s.SinkError, waiting)
		f.Why = "the backlog grows until the sink is back; no attempt is spent meanwhile"
		f.Next = "fix the cause that the error names; if the broker is down, start it: the relay then continues automatically"
		r.add(f)
	case held && before != nil && s.Backlog > 0 && s.Settled == before.Settled && s.Epoch == before.Epoch && s.OldestAge >= r.o.Old:
		f.Check = doctor.CheckRelay
		f.Found = fmt.Sprintf("%s holds it and has settled nothing for %s, though %s", s.Holder, cli.Age(r.over), waiting)
		if f.Why = "the relay renews its lease, so no other one takes over"; s.Rate > 0 { // it did within the last minute: a sink may be slow
			f.Severity = doctor.Warning
		}
		f.Next = "read the log of " + s.Holder + ", and restart it: unsettled messages are sent again"
		r.add(f)
	}
	if s.ParkedKeys > 0 {
		parked := fmt.Sprintf("%s with %s", terminal.PluralVerb(s.ParkedKeys, "key", "is parked", "are parked"), terminal.Plural(s.Parked, "message"))
		if s.HeldKeys > 0 {
			parked += ", " + terminal.CountOf(s.HeldKeys, "held_keys", s.AtLeast) + " of them on hold because of a dead letter"
		}
		next, why := "see which keys, and why", "the sink refuses the first message of each, and later messages of the key wait; other keys continue"
		if s.HeldKeys >= s.ParkedKeys {
			why = "later messages of a key wait until someone decides about its dead letter; other keys continue"
			next = "retry or discard the dead letter of each (dead retry, dead discard): penstock dead list " + argument + ", or see which keys"
		} else if s.HeldKeys > 0 {
			next = "retry or discard the dead letters of those on hold (dead retry, dead discard): penstock dead list " + argument + ", or see which keys"
		}
		if s.HeldKeys < s.ParkedKeys && strings.Contains(argument, " --subscription ") { // not of an adopted table
			next += ", and with --give-up SEQ make a message that the sink will never take a dead letter"
		}
		r.add(doctor.Finding{Check: doctor.CheckParked, Severity: doctor.Warning, About: f.About,
			Found: parked,
			Why:   why,
			Next:  next + ": penstock parked " + argument,
			Measured: []doctor.Figure{{Name: "keys", Value: float64(s.ParkedKeys)}, {Name: "messages", Value: float64(s.Parked)},
				{Name: "held", Value: float64(s.HeldKeys)}}})
	}
	r.dead(f.About, s.DeadLetters, s.AtLeast, argument)
}

// oldest follows a count. Without messages before it, parked ones have no age.
func oldest(age time.Duration) string {
	if age <= 0 {
		return ""
	}
	return ", the oldest for " + cli.Age(age)
}

// atLeast precedes a figure that was not counted to its end.
func atLeast(figures []string) string {
	if len(figures) > 0 {
		return "at least "
	}
	return ""
}

func (r *rules) dead(about string, n int64, figures []string, argument string) {
	if n > 0 {
		r.add(doctor.Finding{Check: doctor.CheckDead, Severity: doctor.Warning, About: about, Found: atLeast(figures) + terminal.PluralVerb(n, "dead letter", "waits", "wait") + " for a decision",
			Next: "retry or discard: penstock dead list " + argument, Measured: []doctor.Figure{{Name: "dead letters", Value: float64(n)}}})
	}
}

const startRelay = "start its relay"

func (r *rules) queue(q *admin.QueueStatus) {
	argument := shell.Word(q.Queue)
	f := doctor.Finding{Check: doctor.CheckQueue, About: q.Queue, Severity: doctor.Warning,
		Measured: []doctor.Figure{{Name: "ready", Value: float64(q.Ready)}, {Name: "running", Value: float64(q.Running)}, {Name: "oldest", Value: q.OldestAge.Seconds(), Unit: "s"}}}
	for _, trouble := range q.Trouble {
		r.add(doctor.Finding{Check: doctor.CheckQueue, Severity: doctor.Warning, About: q.Queue, Found: "its space is not given back: " + trouble,
			Next: "penstock status " + argument, Measured: []doctor.Figure{{Name: "size", Value: float64(q.Bytes), Unit: "bytes"}}})
	}
	switch ready := atLeast(q.AtLeast) + terminal.PluralVerb(q.Ready, "job", "is ready", "are ready") + ", the oldest for " + cli.Age(q.OldestAge); {
	case cli.IsPaused(q.QueueSettings) && q.Ready > 0:
		f.Found, f.Next = "it is paused, and "+ready, "penstock queue resume "+argument
		r.add(f)
	case q.Ready > 0 && q.Running == 0 && q.OldestAge >= min(young, r.o.Old):
		s := cli.Stand(q, min(young, r.o.Old), r.now.alive)
		ready = atLeast(q.AtLeast) + terminal.PluralVerb(s.Ready, "job", "is ready", "are ready") + ", the oldest for " + cli.Age(s.Oldest)
		f.Severity = since(s.Oldest, r.o.Old)
		switch {
		case s.Waits != "":
			f.Severity, f.Found, f.Next = doctor.Warning, s.Waits, s.Release
		case s.Ready == 0: // and what waits is young
			break
		case s.Worker != "":
			if silent := s.Silent(r.now.at); silent > 0 {
				f.Found = "worker " + s.Worker + " has sent no heartbeat for " + cli.Age(silent) + ", and " + ready
				f.Why = "its process is stopped or hangs, or it does not reach the database"
				f.Next = "read its log, and restart its process; to see the workers: penstock queue workers " + argument
				break
			}
			f.Found = "worker " + s.Worker + getsNone + ready
			f.Next = "read the worker's log"
		case s.Of == cli.AnyJobs && r.taken(q):
			if s.Oldest >= r.o.Old {
				f.Severity, f.Found, f.Next = doctor.Warning, "jobs are taken, as by dequeue or by short jobs, but "+ready, r.seeWorkers(argument)
			}
		case r.now.unseen:
			f.Found, f.Why = ready+", and none runs", cli.NoSight
			f.Next = "look as the owner of the tables, with penstock queue workers " + argument
		default:
			f.Found, f.Next = "no worker seems to "+s.Of+": "+ready+", and none runs", cli.StartWorkers+s.Command
		}
		if f.Found != "" {
			r.add(f)
		}
	case q.Running > 0:
		if s := cli.Stand(q, r.o.Old, nil); s.Waits != "" {
			f.Found, f.Next = s.Waits, s.Release
			r.add(f)
		} else if s.Of != cli.AnyJobs {
			f.Found, f.Next = "workers run, but none seems to "+s.Of+", some of which have been ready for "+cli.Age(r.o.Old)+" and more", cli.StartWorkers+s.Command
			r.add(f)
		}
	}
	r.dead(q.Queue, q.DeadLetters, q.AtLeast, argument)
	if was := r.was(q); was != nil {
		next := r.seeWorkers(argument)
		if q.WaitsFor() == "limit" {
			next = fmt.Sprintf("%d of %d jobs run, which is the limit; to raise it: penstock queue set %s --max-running N", q.Running, *q.MaxRunning, argument)
		}
		r.growth(q.Queue, q.Ready-was.Ready, q.Ready, q.OldestAge, q.Bytes-was.Bytes, next)
	}
}

// getsNone follows the name of a worker that lives.
const getsNone = " runs but gets none of its jobs: "

// was is a queue at the first look.
func (r *rules) was(q *admin.QueueStatus) *admin.QueueStatus {
	return find(r.before.queues, func(b *admin.QueueStatus) bool { return b.Queue == q.Queue })
}

// taken reports whether ready jobs went between the two looks: dequeue, and short jobs, leave no other trace.
func (r *rules) taken(q *admin.QueueStatus) bool {
	was := r.was(q)
	return was != nil && was.Ready > 0 && (q.Ready < was.Ready || q.OldestAge < was.OldestAge+r.over/2)
}

// seeWorkers shows the workers of a queue; where the database does not keep them, only its figures.
func (r *rules) seeWorkers(queue string) string {
	if !r.now.beats {
		return "see whether it grows on: penstock status " + queue + " --watch"
	}
	return "see its workers, and how many jobs each has ended: penstock queue workers " + queue
}

// growth estimates the time until trouble at present rates.
func (r *rules) growth(about string, grown, waits int64, oldest time.Duration, bytes int64, next string) {
	if grown <= 0 || oldest < min(burst, r.o.Old) {
		return
	}
	f := doctor.Finding{Check: doctor.CheckBacklog, Severity: doctor.Warning, About: about,
		Found: fmt.Sprintf("its backlog of %s grows by %s", terminal.Count(waits), terminal.Rate(float64(grown)/r.over.Seconds())),
		Why:   "messages or jobs arrive faster than they are taken, or nothing takes them; the rate is that of " + cli.Age(r.over),
		Next:  next,
		Measured: []doctor.Figure{{Name: "waiting", Value: float64(waits)}, {Name: "growth", Value: float64(grown) / r.over.Seconds(), Unit: "per second"},
			{Name: "growth of its size", Value: float64(bytes) / r.over.Seconds(), Unit: "bytes per second"}}}
	if r.free >= 0 && bytes > 0 {
		left := time.Duration(min(float64(r.free)/float64(bytes)*r.over.Seconds(), 1e9)) * time.Second
		f.Found += "; at that rate the disk of the database is full in " + cli.Coarse(left)
		f.Measured = append(f.Measured, doctor.Figure{Name: "until the disk is full", Value: left.Seconds(), Unit: "s"})
		if left < time.Hour && r.over >= min(young, r.o.Old) { // not a burst
			f.Severity = doctor.Critical
		}
	}
	r.add(f)
}

// workers reports jobs whose worker is gone, or hangs.
func (r *rules) workers(q *admin.QueueStatus) {
	var held, expired, long []doctor.Running
	var lengths []time.Duration
	for _, job := range r.now.running {
		if job.Queue == q.Queue {
			lengths = append(lengths, job.Held)
		}
	}
	slices.Sort(lengths)
	for _, job := range r.now.running {
		stayed := slices.ContainsFunc(r.before.running, func(b doctor.Running) bool { return b.Lease == job.Lease })
		switch {
		case job.Queue != q.Queue:
		case job.Expired >= min(young, r.o.Old):
			expired = append(expired, job)
		case stayed && job.Expired < 0:
			held = append(held, job)
			if job.Held >= r.o.Old && (len(lengths) < 2 || job.Held >= 10*lengths[(len(lengths)-1)/2]) {
				long = append(long, job)
			}
		}
	}
	f := doctor.Finding{Check: doctor.CheckWorkers, Severity: doctor.Critical, About: q.Queue, Why: "a worker that hangs may continue to extend its leases"}
	add := func(jobs []doctor.Running) {
		f.Measured = []doctor.Figure{{Name: "jobs", Value: float64(len(jobs))}, {Name: "job", Value: float64(jobs[0].ID)}, {Name: "enqueued", Value: jobs[0].Age.Seconds(), Unit: "s"}, {Name: "held", Value: jobs[0].Held.Seconds(), Unit: "s"}}
		if f.Next == "" {
			f.Next = fmt.Sprintf("if it hangs, end the process of %s, by a second signal, as the first one waits for the job: the job runs again, and may hang the next worker too."+
				" So limit its time, by the worker's --timeout or the job's own timeout. To give the job up, which then counts as done: penstock job cancel %s %d",
				cmp.Or(jobs[0].Worker, "the worker"), shell.Word(q.Queue), jobs[0].ID)
		}
		r.add(f)
	}
	if was := r.was(q); len(held) > 0 && int64(len(held)) >= q.Running && was != nil && was.Running == q.Running && q.Ready > 0 && q.OldestAge >= r.o.Old {
		f.Found = fmt.Sprintf("for %s no job has begun or ended: %s, held by %s, while %s, the oldest for %s", cli.Age(r.over), jobName(held), workersOf(held),
			terminal.PluralVerb(q.Ready, "job", "is ready", "are ready"), cli.Age(q.OldestAge))
		if slices.ContainsFunc(held, func(job doctor.Running) bool { return job.Held > 0 && job.Held < r.o.Old }) { // jobs may take that long
			f.Severity = doctor.Warning
		}
		if q.MaxRunning != nil && *q.MaxRunning > 0 && q.Running >= int64(*q.MaxRunning) {
			f.Found += "; the limit of " + terminal.Plural(int64(*q.MaxRunning), "running job") + " (max_running) is reached, which is expected if jobs take long"
		}
		add(held)
	} else if len(long) > 0 {
		f.Severity, f.Found = doctor.Warning, fmt.Sprintf("%s, held by %s for %s: far longer than others run", jobName(long), workersOf(long), cli.Age(long[0].Held))
		add(long)
	}
	if len(expired) > 0 {
		f.Severity, f.Why, f.Next = since(expired[0].Expired, r.o.Old), "no worker is left that takes such a job over", cli.StartWorkers+"penstock work "+shell.Word(q.Queue)+" --exec COMMAND"
		f.Found = fmt.Sprintf("%s held by %s, whose lease ended %s ago: it has neither ended the job nor extended the lease", jobName(expired), workersOf(expired), cli.Age(expired[0].Expired))
		add(expired)
	}
}

func jobName(jobs []doctor.Running) string {
	name := fmt.Sprintf("job %d (attempt %d, enqueued %s ago)", jobs[0].ID, jobs[0].Attempt, cli.Age(jobs[0].Age))
	if len(jobs) > 1 {
		name += " and " + terminal.Plural(int64(len(jobs)-1), "other")
	}
	return name
}

// workersOf names up to three workers. A worker may have no name.
func workersOf(jobs []doctor.Running) string {
	var names []string
	for i := range jobs {
		if name := cmp.Or(jobs[i].Worker, unnamed); !slices.Contains(names, name) && len(names) < 3 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// since is a severity that grows with age.
func since(age, old time.Duration) doctor.Severity {
	if age >= old {
		return doctor.Critical
	}
	return doctor.Warning
}

func find[T any](all []T, is func(*T) bool) *T {
	if i := slices.IndexFunc(all, func(one T) bool { return is(&one) }); i >= 0 {
		return &all[i]
	}
	return nil
}
