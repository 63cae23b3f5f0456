package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// UnreadQueuesReader is a store that names the queues that QueueStatus leaves out.
type UnreadQueuesReader interface {
	UnreadQueues(ctx context.Context) ([]string, error)
}

// IsQueue reports whether there is a queue of that name. It asks for impossible dead letters,
// because that reads nothing.
func IsQueue(ctx context.Context, store driver.QueueStore, name string) (bool, error) {
	_, err := store.DeadJobs(ctx, admin.DeadJobQuery{Queue: name, AfterID: math.MaxInt64, Limit: 1})
	if errors.Is(err, penstock.ErrNoQueue) {
		return false, nil
	}
	return err == nil, about.Queue(err, "looking for a queue of that name", name)
}

// JobIDs reads ids, each once.
func JobIDs(texts []string) ([]int64, error) {
	ids := make([]int64, len(texts))
	for i, text := range texts {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id < 1 {
			return nil, terminal.Usage(fmt.Errorf("%q is not the id of a job: give the number that enqueue printed", text))
		}
		ids[i] = id
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// GroupsAtOnce is how many groups one call reads.
const GroupsAtOnce = 1000

func IsPaused(s penstock.QueueSettings) bool { return s.Paused != nil && *s.Paused }

func RunningLimit(s penstock.QueueSettings) string {
	if s.MaxRunning == nil || *s.MaxRunning == 0 {
		return "any number"
	}
	return terminal.Count(int64(*s.MaxRunning))
}

// PolicyText describes a policy for people.
func PolicyText(p penstock.GroupPolicy) string {
	var parts []string
	if p.MaxRunning > 0 {
		parts = append(parts, terminal.Count(int64(p.MaxRunning))+" at a time")
	}
	if p.Rate.Jobs > 0 {
		parts = append(parts, RateText(p.Rate))
	}
	if p.Weight > 0 {
		parts = append(parts, fmt.Sprintf("weight %d", p.Weight))
	}
	if len(parts) == 0 {
		return "no policy"
	}
	return strings.Join(parts, ", ")
}

// ParseRate parses 60/1m.
func ParseRate(text string, burst int) (r penstock.Rate, err error) {
	if text == "" {
		if burst != 0 {
			return r, terminal.Usage(errors.New("--burst belongs to a rate: give --rate as well, such as --rate 60/1m"))
		}
		return r, nil
	}
	jobs, per, ok := strings.Cut(text, "/")
	if r.Jobs, err = strconv.Atoi(jobs); err == nil && ok {
		r.Per, err = ParseSpan(per)
	}
	if err != nil || !ok || r.Jobs < 1 {
		return r, terminal.Usage(fmt.Errorf("--rate is %q: give a number and a time, such as 60/1m", text))
	}
	r.Burst = burst
	return r, nil
}

// RateText describes a rate for people.
func RateText(r penstock.Rate) string {
	text := terminal.Count(int64(r.Jobs)) + " in " + SpanText(r.Per)
	if r.Burst > 1 {
		text += fmt.Sprintf(", %d at once", r.Burst)
	}
	return text
}

// LimitsText describes the limits of a group for people. It is empty if it has none.
func LimitsText(l *admin.GroupLimits) string {
	if l == nil {
		return ""
	}
	text := PolicyText(penstock.GroupPolicy{MaxRunning: l.MaxRunning, Rate: l.Rate, Weight: l.Weight})
	if !l.Until.IsZero() {
		text = strings.TrimSuffix("held: "+l.Reason, ": ")
	}
	return text
}

// AnyJobs completes "no worker seems to …", if no single group of a queue is known to be left alone.
const AnyJobs = "run"

// ReadUntaken reads the groups of queues whose jobs have been ready for that long, the first by name, if their groups were not
// read.
func ReadUntaken(ctx context.Context, store driver.QueueStore, queues []admin.QueueStatus, age time.Duration) error {
	for i := range queues {
		q := &queues[i]
		if q.Ready == 0 || q.OldestAge < age || q.Groups != nil || IsPaused(q.QueueSettings) {
			continue
		}
		groups, err := store.QueueGroups(ctx, q.Queue, "", GroupsAtOnce)
		if err != nil && !errors.Is(err, penstock.ErrNoQueue) && !pgerror.IsForbidden(err) { // dropped meanwhile
			return err
		}
		q.Groups = groups
	}
	return nil
}

// Alive reads the workers whose heartbeats are fresh at a time of the database, if a queue has only jobs that have been ready for that long.
// It reads none if the store keeps no heartbeats, or the role may not see them, which unseen reports.
func Alive(ctx context.Context, store any, queues []admin.QueueStatus, age time.Duration, at time.Time) (alive []admin.Worker, unseen bool, err error) {
	reader, ok := store.(driver.WorkerStore)
	if !ok || !slices.ContainsFunc(queues, func(q admin.QueueStatus) bool { return q.Ready > 0 && q.Running == 0 && q.OldestAge >= age }) {
		return nil, false, nil
	}
	workers, err := reader.Workers(ctx, "", CountedUpTo)
	if err != nil {
		if pgerror.IsForbidden(err) {
			return nil, true, nil
		}
		return nil, false, err
	}
	return slices.DeleteFunc(workers, func(w admin.Worker) bool { return w.Stopped || w.AliveUntil.Before(at) }), false, nil
}

// NoSight follows a figure where the role may not see workers, so that none can be said to be missing.
const NoSight = "this role may not see whether a worker lives"

// StartWorkers precedes a command: the jobs may be those of a program, in any language.
const StartWorkers = "start the worker of your application, or: "

// Standing is why ready jobs of a queue do not run.
type Standing struct {
	// Waits names the groups, or the limit of the queue, that let no job start, and Release names the command that changes this, if no other jobs stand.
	Waits, Release string
	// Of completes "no worker seems to …", and Command takes such jobs.
	Of, Command string
	// Worker lives and serves them, the one that was heard last. It is empty if there is none. SeenAt is its last heartbeat.
	Worker string
	SeenAt time.Time
	// Ready and Oldest leave out the groups that may start no job.
	Ready  int64
	Oldest time.Duration
}

// Stand explains why ready jobs of a queue do not run, if some have been ready for that long.
func Stand(q *admin.QueueStatus, age time.Duration, alive []admin.Worker) Standing {
	s := Standing{Ready: q.Ready, Oldest: q.OldestAge}
	var waits, rest []admin.GroupStatus
	for _, g := range q.Groups {
		switch {
		case g.Ready == 0:
		case waitText(&g) != "":
			waits = append(waits, g)
		default:
			rest = append(rest, g)
		}
	}
	if len(waits) > 0 {
		s.Ready, s.Oldest = 0, 0
		for _, g := range rest {
			s.Ready, s.Oldest = s.Ready+g.Ready, max(s.Oldest, g.OldestAge)
		}
	}
	var names []string
	served := q.Running > 0 || slices.ContainsFunc(alive, func(w admin.Worker) bool { return w.Queue == q.Queue })
	s.Of, s.Command, names = untaken(q, age, served)
	if len(names) == 0 && len(waits) > 0 {
		// a hold goes before a limit, which may be as intended
		slices.SortStableFunc(waits, func(a, b admin.GroupStatus) int { return b.Limits.Until.Compare(a.Limits.Until) })
		if g := waits[0]; g.OldestAge >= age {
			s.Waits, s.Release = waitText(&g), releases(q.Queue, &g)
			if len(waits) > 1 {
				s.Waits += fmt.Sprintf("; so do jobs of %s", terminal.Plural(int64(len(waits)-1), "other group"))
			}
		}
	}
	if s.Waits == "" && s.Oldest >= age {
		jobs, set := ": "+terminal.PluralVerb(s.Ready, "job", "waits", "wait"), "penstock queue set "+shell.Word(q.Queue)
		switch q.WaitsFor() {
		case "limit":
			s.Waits, s.Release = "the queue is at its limit of "+terminal.Plural(int64(*q.MaxRunning), "running job")+jobs, set+" --max-running N"
		case "rate":
			s.Waits, s.Release = "the queue is over its rate of "+RateText(*q.Rate)+jobs, set+" --rate unlimited"
		}
	}
	for _, w := range alive {
		if w.Queue == q.Queue && (len(w.Groups) == 0 || len(names) == 0 || slices.ContainsFunc(w.Groups, func(g string) bool { return slices.Contains(names, g) })) {
			if s.Worker == "" || w.SeenAt.After(s.SeenAt) {
				s.Worker, s.SeenAt = cmp.Or(shell.Visible(w.Name), "without a name"), w.SeenAt
			}
		}
	}
	return s
}

// Silent is for how long the worker has sent no heartbeat, at a time of the database; 0 while the next one is not late.
func (s *Standing) Silent(at time.Time) time.Duration {
	if silent := at.Sub(s.SeenAt); !s.SeenAt.IsZero() && silent > driver.HeartbeatEvery*3/2 {
		return silent
	}
	return 0
}

// waitText explains why no ready job of a group may start, whatever workers there are. It is empty if one may.
func waitText(g *admin.GroupStatus) string {
	l := g.Limits
	text := "group " + shell.Visible(g.Group) + " is "
	if g.Group == "" {
		text = "the group without a name is "
	}
	switch g.WaitsFor() {
	case "hold":
		text += "held until " + l.Until.UTC().Format("15:04:05") + " UTC"
		if l.Reason != "" {
			text += " (" + shell.Visible(l.Reason) + ")"
		}
	case "limit":
		text += "at its limit of " + terminal.Plural(int64(l.MaxRunning), "running job")
	case "rate":
		text += "over its rate of " + RateText(l.Rate)
	default:
		return ""
	}
	return text + ": " + terminal.PluralVerb(g.Ready, "job", "waits", "wait")
}

// releases is the command that ends a hold, or shows a limit.
func releases(queue string, g *admin.GroupStatus) string {
	if g.Limits.Until.IsZero() {
		return "penstock queue group list " + shell.Word(queue)
	}
	return "penstock queue group hold " + shell.Word(queue) + " " + shell.Word(g.Group) + " 0"
}

// untaken names the jobs of a queue that no worker takes, the command that takes them, and their groups. Jobs of such a group
// have been ready for that long, none of it runs, and its limits let one start. If the queue is not served at all, no single group is
// left alone: a worker for one of them would not take the others.
func untaken(q *admin.QueueStatus, age time.Duration, served bool) (of, command string, names []string) {
	grouped := false
	for _, g := range q.Groups {
		grouped = grouped || g.Ready > 0 && g.Group != ""
		if g.Ready > 0 && g.Running == 0 && g.OldestAge >= age && waitText(&g) == "" {
			names = append(names, g.Group)
		}
	}
	of = AnyJobs
	flag := ""
	switch {
	case !served && grouped:
		flag = " --all-groups"
	case !served || len(names) == 0 || len(q.Groups) == 1 && names[0] == "":
	case len(names) == 1 && names[0] == "":
		of = "take jobs without a group"
	case len(names) == 1:
		of = "take jobs of group " + shell.Visible(names[0])
		flag = " --group " + shell.Word(names[0])
	default:
		of = fmt.Sprintf("take jobs of %d groups, such as %s", len(names), shell.Visible(names[len(names)-1]))
		flag = " --all-groups"
	}
	return of, "penstock work " + shell.Word(q.Queue) + flag + " --exec COMMAND", names
}
