package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// unattended is the age of a ready job from which status says that no worker runs. Younger jobs
// may be about to be claimed.
const unattended = 10 * time.Second

const (
	starved    = 5 * time.Minute // how long jobs of a group must be ready, while others run, before status says so
	leasesRead = 100             // of each queue
)

func (w *Writer) queues(queues []admin.QueueStatus) {
	if len(queues) == 0 {
		return
	}
	w.begin()
	columns := []terminal.Column{terminal.Cut("QUEUE", 32), terminal.Right("READY"), terminal.Right("OLDEST"), terminal.Right("RUNNING"),
		terminal.Right("DELAYED"), terminal.Right("WAITING"), terminal.Right("DEAD"), terminal.Right("SIZE")}
	done := slices.ContainsFunc(queues, func(q admin.QueueStatus) bool { return q.DoneBytes > 0 })
	if done { // the history of jobs that are done
		columns = append(columns, terminal.Right("DONE"))
	}
	if w.wide {
		columns = append(columns, terminal.Left("SEGMENTS"), terminal.Left("ORDER"))
	}
	t := w.table(columns...)
	var notes []string
	for i := range queues {
		q := &queues[i]
		cells := []string{q.Queue, terminal.CountOf(q.Ready, "ready", q.AtLeast), cli.Age(q.OldestAge), runningText(q), terminal.CountOf(q.Delayed, "delayed", q.AtLeast),
			terminal.CountOf(q.Waiting, "waiting", q.AtLeast), terminal.CountOf(q.DeadLetters, "dead_letters", q.AtLeast), terminal.Size(q.Bytes)}
		if done {
			cells = append(cells, terminal.Size(q.DoneBytes))
		}
		cells = append(cells, segments(q.Segments), string(q.Order))
		t.Row(cells[:len(columns)]...)
		notes = append(notes, w.queueNotes(q)...)
	}
	w.flush(t)
	w.groups(queues)
	w.notes(notes)
}

// groups writes the groups that were asked for.
func (w *Writer) groups(queues []admin.QueueStatus) {
	columns := []terminal.Column{terminal.Cut("QUEUE", 24), terminal.Cut("GROUP", 24), terminal.Right("READY"), terminal.Right("OLDEST"), terminal.Right("RUNNING"),
		terminal.Right("DELAYED"), terminal.Right("WAITING"), terminal.Right("DEAD")}
	limited := slices.ContainsFunc(queues, func(q admin.QueueStatus) bool {
		return slices.ContainsFunc(q.Groups, func(g admin.GroupStatus) bool { return g.Limits != nil })
	})
	held := slices.ContainsFunc(queues, func(q admin.QueueStatus) bool {
		return slices.ContainsFunc(q.Groups, func(g admin.GroupStatus) bool { return g.Limits != nil && !g.Limits.Until.IsZero() })
	})
	if held { // apart, because limits may be shortened
		columns = append(columns, terminal.Left("HELD FOR"))
	}
	if limited {
		columns = append(columns, terminal.Cut("LIMITS", 60))
	}
	t := w.table(columns...)
	any := false
	for i := range queues {
		for _, g := range queues[i].Groups {
			if !any {
				fmt.Fprintln(w)
				any = true
			}
			ready := terminal.Count(g.Ready)
			if g.More {
				ready += "+"
			}
			row := []string{queues[i].Queue, g.Group, ready, cli.Age(g.OldestAge), terminal.Count(g.Running), terminal.Count(g.Delayed), terminal.Count(g.Waiting), terminal.Count(g.DeadLetters)}
			if held {
				left := ""
				if g.Limits != nil {
					left = strings.TrimPrefix(cli.Until(g.Limits.Until, w.now), "in ")
				}
				row = append(row, left)
			}
			if limited {
				row = append(row, cli.LimitsText(g.Limits))
			}
			t.Row(row...)
		}
	}
	if any {
		w.flush(t)
	}
}

// readGroups fills in the groups of queues.
func readGroups(ctx context.Context, store driver.QueueStore, queues []admin.QueueStatus) error {
	for i := range queues {
		for after := ""; ; {
			page, err := store.QueueGroups(ctx, queues[i].Queue, after, cli.GroupsAtOnce)
			if errors.Is(err, penstock.ErrNoQueue) { // dropped meanwhile
				break
			}
			if err != nil {
				return about.Queue(err, fmt.Sprintf("reading the groups of queue %q", queues[i].Queue), queues[i].Queue)
			}
			queues[i].Groups = append(queues[i].Groups, page...)
			if len(page) < cli.GroupsAtOnce {
				break
			}
			after = page[len(page)-1].Group
		}
	}
	return nil
}

// runningText shows the limit next to the figure.
func runningText(q *admin.QueueStatus) string {
	if q.MaxRunning == nil || *q.MaxRunning == 0 {
		return terminal.Count(q.Running)
	}
	return terminal.Count(q.Running) + " of " + cli.RunningLimit(q.QueueSettings)
}

// left has the jobs that no worker takes, by queue.
type left struct {
	queues  map[string]admin.QueueStatus // with its groups, if they were read for this
	expired map[string][]doctor.Running  // jobs whose leases ended unattended ago
	refused bool                         // the role may not read leases
	alive   []admin.Worker               // those with fresh heartbeats
	unseen  bool                         // the role may not read these
	notes   map[string][]string          // about jobs that failed and are tried again, schedules and barriers
}

// readLeft reads the data for a note: groups of queues with jobs that have waited, and leases, if the role may read them.
func readLeft(ctx context.Context, store driver.QueueStore, queues []admin.QueueStatus, only []string) (l left, err error) {
	l = left{queues: map[string]admin.QueueStatus{}, expired: map[string][]doctor.Running{}, notes: map[string][]string{}}
	with := slices.Clone(queues)
	if err := cli.ReadUntaken(ctx, store, with, unattended); err != nil {
		return l, fmt.Errorf("reading the groups of queues: %w", err)
	}
	if l.alive, l.unseen, err = cli.Alive(ctx, store, queues, unattended, time.Now()); err != nil {
		return l, fmt.Errorf("reading the workers of queues: %w", err)
	}
	running := false
	for _, q := range with {
		l.queues[q.Queue] = q
		running = running || q.Running > 0
		troubles, _, err := cli.Troubles(ctx, store, &q, starved, time.Now())
		if err != nil {
			return l, fmt.Errorf("reading delayed jobs, schedules and barriers of queues: %w", err)
		}
		for _, f := range troubles {
			if f.Check != doctor.CheckFailing { // its note ends with the error
				f.Found += "; " + f.Next
			}
			l.notes[q.Queue] = append(l.notes[q.Queue], f.Found)
		}
	}
	if examiner, ok := store.(doctor.Examiner); ok && running {
		jobs, err := examiner.Running(ctx, append(only, "")[0], leasesRead)
		if err != nil && !pgerror.IsForbidden(err) {
			return l, fmt.Errorf("reading the leases of queues: %w", err)
		}
		l.refused = err != nil
		for _, job := range jobs {
			if job.Expired >= unattended {
				l.expired[job.Queue] = append(l.expired[job.Queue], job)
			}
		}
	}
	return l, nil
}

// queueNotes names decisions for a person, and explains figures.
func (w *Writer) queueNotes(q *admin.QueueStatus) (notes []string) {
	note := func(format string, args ...any) {
		notes = append(notes, shell.Visible(q.Queue)+": "+fmt.Sprintf(format, args...))
	}
	for _, trouble := range q.Trouble {
		note("its space is not given back: %s", shell.Visible(trouble))
	}
	if q.DeadLetters > 0 {
		note("%s to retry or to discard: penstock dead list %s", cli.PluralOf(q.DeadLetters, "dead_letters", q.AtLeast, "dead letter"), shell.Word(q.Queue))
	}
	for _, text := range w.left.notes[q.Queue] {
		note("%s", shell.Visible(text))
	}
	switch {
	case cli.IsPaused(q.QueueSettings):
		note("it is paused, no job begins: penstock queue resume %s", shell.Word(q.Queue))
	case q.Ready > 0 && q.Running == 0 && q.OldestAge > unattended:
		s := cli.Stand(w.withGroups(q), unattended, w.left.alive)
		ready := terminal.PluralVerb(s.Ready, "job", "is ready", "are ready")
		switch {
		case s.Waits != "":
			note("%s: %s", s.Waits, s.Release)
		case s.Ready == 0: // and what waits is young
			break
		case s.Silent(w.now) > 0:
			note("worker %s has sent no heartbeat for %s, and %s; its process is stopped or hangs: penstock queue workers %s", s.Worker, cli.Age(s.Silent(w.now)), ready, shell.Word(q.Queue))
		case s.Worker != "":
			note("worker %s runs but gets none of its jobs, and %s; an open transaction may hold them: penstock doctor", s.Worker, ready)
		case w.left.unseen:
			note("%s, and none runs; "+cli.NoSight+": as the owner of the schema, penstock queue workers %s", ready, shell.Word(q.Queue))
		default:
			note("no worker seems to %s, and %s; a program that dequeues is not seen: "+cli.StartWorkers+"%s", s.Of, ready, s.Command)
		}
	case q.Running > 0:
		if s := cli.Stand(w.withGroups(q), starved, nil); s.Waits != "" {
			note("%s: %s", s.Waits, s.Release)
		} else if s.Of != cli.AnyJobs {
			note("workers run, but none seems to %s: %s", s.Of, s.Command)
		}
	}
	if expired := w.left.expired[q.Queue]; len(expired) > 0 {
		longest := slices.MaxFunc(expired, func(a, b doctor.Running) int { return cmp.Compare(a.Expired, b.Expired) })
		note("no worker seems to run: %s of running jobs ended, the first %s ago: "+cli.StartWorkers+"penstock work %s --exec COMMAND", terminal.Plural(int64(len(expired)), "lease"), cli.Age(longest.Expired), shell.Word(q.Queue))
	}
	return notes
}

// withGroups is the queue with the groups that were read for its notes.
func (w *Writer) withGroups(q *admin.QueueStatus) *admin.QueueStatus {
	if with, ok := w.left.queues[q.Queue]; ok {
		return &with
	}
	return q
}
