package cli

import (
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

// QueueStore is a store for verbs about queues.
type QueueStore interface {
	driver.QueueStore
	Close() error
}

// OpenQueues opens the database for a verb about queues. The caller closes it.
func (a *App) OpenQueues(ctx context.Context) (QueueStore, error) {
	return OpenWith[QueueStore](ctx, a, "queues")
}

// QueueStatusReader has the methods of a store that show queues.
type QueueStatusReader interface {
	QueueStatus(ctx context.Context, names ...string) ([]admin.QueueStatus, error)
}

// DeadJobStore has the methods of a store for dead letters of a queue.
type DeadJobStore interface {
	DeadJobs(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadJob, error)
	RetryDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error)
	DiscardDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error)
}

// IsQueue reports whether there is a queue of that name. It asks for impossible dead letters,
// because that reads nothing.
func IsQueue(ctx context.Context, store DeadJobStore, name string) (bool, error) {
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

// GroupReader has the methods of a store that show groups.
type GroupReader interface {
	QueueGroups(ctx context.Context, queue, after string, most int) ([]admin.GroupStatus, error)
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
		text = strings.TrimSuffix("held until "+l.Until.UTC().Format("15:04:05")+" UTC: "+l.Reason, ": ")
	}
	return text
}

// AnyJobs completes "no worker seems to …", if no single group of a queue is known to be left alone.
const AnyJobs = "run"

// ReadUntaken reads the groups of queues whose jobs have been ready for that long, the first by name, if their groups were not
// read.
func ReadUntaken(ctx context.Context, store any, queues []admin.QueueStatus, age time.Duration) error {
	reader, ok := store.(GroupReader)
	for i := range queues {
		q := &queues[i]
		if !ok || q.Ready == 0 || q.OldestAge < age || q.Groups != nil || IsPaused(q.QueueSettings) {
			continue
		}
		groups, err := reader.QueueGroups(ctx, q.Queue, "", GroupsAtOnce)
		if err != nil && !errors.Is(err, penstock.ErrNoQueue) && !pgerror.IsForbidden(err) { // dropped meanwhile
			return err
		}
		q.Groups = groups
	}
	return nil
}

// Untaken names the jobs of a queue that no worker takes, and the command that takes them. They are in groups whose jobs have
// been ready for that long, while none of the group runs.
func Untaken(q *admin.QueueStatus, age time.Duration) (of, command string) {
	var names []string
	for _, g := range q.Groups {
		if g.Ready > 0 && g.Running == 0 && g.OldestAge >= age && !g.Limits.Waits() {
			names = append(names, g.Group)
		}
	}
	of = AnyJobs
	flag := ""
	switch {
	case len(names) == 0 || len(q.Groups) == 1 && names[0] == "":
	case len(names) == 1 && names[0] == "":
		of = "take jobs without a group"
	case len(names) == 1:
		of = "take jobs of group " + shell.Visible(names[0])
		flag = " --group " + shell.Word(names[0])
	default:
		of = fmt.Sprintf("take jobs of %d groups, such as %s", len(names), shell.Visible(names[len(names)-1]))
		flag = " --all-groups"
	}
	return of, "penstock work " + shell.Word(q.Queue) + flag + " --exec COMMAND"
}
