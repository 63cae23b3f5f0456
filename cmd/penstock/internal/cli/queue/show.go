package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// shownJob is a job in JSON, wherever it is. One that is done has no payload any more.
type shownJob struct {
	listedJob
	Headers    map[string]string `json:"headers,omitempty"`
	FinishedAt time.Time         `json:"finished_at,omitzero"` // of a job that is done
	cli.PayloadJSON
	payload []byte
}

func jobShowCommand(a *cli.App) *cobra.Command {
	var (
		id    int64
		group string
		full  bool
	)
	cmd := terminal.Verb("show QUEUE ID", "Show a job with its state, payload and all errors", a.Checked(func(_ *cobra.Command, args []string) error {
		ids, err := cli.JobIDs(args[1:])
		if err == nil {
			id = ids[0]
		}
		return err
	}, func(ctx context.Context, store driver.Database, args []string) error {
		j, err := findJob(ctx, store, args[0], group, id)
		if err != nil {
			return about.Queue(err, "looking for a job", args[0])
		}
		if a.JSON {
			return json.NewEncoder(a.Stdout).Encode(j)
		}
		_, err = io.WriteString(a.Stdout, j.text(args[0], full, time.Now())+a.Suggest(j.next(args[0])))
		return err
	}))
	cmd.Flags().StringVar(&group, "group", "", "`group` of the job: one that is ready is found faster")
	cmd.Flags().BoolVar(&full, "full", false, "the whole payload, however long")
	return a.WithJSON(cmd, "one JSON line, with the whole payload")
}

// findJob looks in every state. PostgreSQL finds a ready job within its group only, so without a hit it looks in each group, which costs a call.
func findJob(ctx context.Context, store driver.Database, queue, group string, id int64) (*shownJob, error) {
	finder, ok := store.(interface {
		FindJobs(ctx context.Context, f admin.Find) ([]admin.Found, error)
	})
	if !ok {
		return searchJob(ctx, store, queue, id)
	}
	find := func(group string) (*shownJob, error) {
		found, err := finder.FindJobs(ctx, admin.Find{In: queue, ID: strconv.FormatInt(id, 10), Group: group, Limit: 1})
		if err != nil || len(found) == 0 {
			return nil, err
		}
		return shown(&found[0], true), nil
	}
	if j, err := find(group); j != nil || err != nil {
		return j, err
	}
	if history, ok := store.(driver.HistoryStore); ok {
		done, _, err := history.DoneJobs(ctx, admin.DoneJobQuery{Queue: queue, IDs: []int64{id}, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(done) > 0 {
			return doneJob(&done[0]), nil
		}
	}
	for after := ""; group == ""; {
		groups, err := store.QueueGroups(ctx, queue, after, cli.GroupsAtOnce)
		if err != nil {
			return nil, err
		}
		for i := range groups {
			if after = groups[i].Group; after == "" || groups[i].Ready == 0 {
				continue
			}
			if j, err := find(after); j != nil || err != nil {
				return j, err
			}
		}
		if len(groups) < cli.GroupsAtOnce {
			break
		}
	}
	return nil, errNoJob(queue, id)
}

// searchJob reads the dead letter of the id, or all jobs of the queue, without payloads.
func searchJob(ctx context.Context, store driver.Database, queue string, id int64) (*shownJob, error) {
	dead, err := store.DeadJobs(ctx, admin.DeadJobQuery{Queue: queue, IDs: []int64{id}, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(dead) > 0 {
		d := &dead[0]
		m := penstock.Message{Seq: d.Job.ID, Key: d.Job.Key, CreatedAt: d.Job.CreatedAt, Headers: d.Job.Headers, Payload: d.Job.Payload}
		return shown(&admin.Found{Message: m, Group: d.Job.Group, Priority: d.Job.Priority,
			Where: []admin.Whereabouts{{State: "dead", Attempts: d.Job.Attempt, Failures: d.Failures, Report: d.Job.Report, DiedAt: d.At.UTC()}}}, true), nil
	}
	var j *shownJob
	pages := jobPages{each: func(f *admin.Found) bool {
		if f.Message.Seq == id {
			j = shown(f, false)
		}
		return j == nil
	}}
	for _, state := range jobStates {
		if err := pages.read(ctx, store, admin.JobQuery{Queue: queue, State: state, Limit: donePage}, false); err != nil || j != nil {
			return j, err
		}
	}
	return nil, errNoJob(queue, id)
}

func errNoJob(queue string, id int64) error {
	return penstock.WithHint(fmt.Errorf("queue %q has no job %d", queue, id), "it is done, cancelled, or was never there; penstock queue set %s --keep-done 24h keeps those that are done, on PostgreSQL", shell.Word(queue))
}

func shown(f *admin.Found, withPayload bool) *shownJob {
	j := &shownJob{listedJob: listed(f), Headers: f.Message.Headers, payload: f.Message.Payload}
	j.Failures = cli.NotNull(j.Failures)
	if withPayload {
		j.PayloadJSON = cli.PayloadFor(j.payload)
	}
	return j
}

func doneJob(d *admin.DoneJob) *shownJob {
	return &shownJob{FinishedAt: d.FinishedAt.UTC(), listedJob: listedJob{ID: d.ID, Kind: d.Kind, Key: d.Key, Group: d.Group, Priority: d.Priority, CreatedAt: d.CreatedAt.UTC(),
		Whereabouts: admin.Whereabouts{State: "done", Attempts: d.Attempt, Worker: d.Worker, Failures: cli.NotNull(d.Failures), Report: d.Report, Since: d.ClaimedAt}}}
}

// text is for people, one fact per line.
func (j *shownJob) text(queue string, full bool, now time.Time) string {
	var out cli.DeadLetterText
	out.Line("id", "%d of %s", j.ID, shell.Visible(queue))
	out.Line("state", "%s", j.state(now))
	for _, fact := range [][2]string{{"kind", j.Kind}, {"key", j.Key}, {"group", j.Group}} {
		out.Line(fact[0], "%s", terminal.OrDash(shell.Visible(fact[1])))
	}
	out.Line("priority", "%d", j.Priority)
	out.Line("created", "%s, %s ago", cli.Clock(j.CreatedAt), cli.Since(j.CreatedAt, now))
	out.Line("attempts", "%d", j.Attempts)
	if j.Worker != "" {
		out.Line("worker", "%s", shell.Visible(j.Worker))
	}
	out.Headers(j.Headers)
	if j.Report != nil {
		out.Line("report", "%s", shell.Visible(string(j.Report)))
	}
	out.Failures(j.Failures)
	switch {
	case j.State == "done":
		out.Line("payload", "not kept")
	case j.Payload == nil && j.PayloadBase64 == nil:
		out.Line("payload", "not shown: the database is not PostgreSQL")
	default:
		out.Payload(j.payload, full)
	}
	return out.String()
}

// state is the state in words, with its times.
func (j *shownJob) state(now time.Time) string {
	switch {
	case j.State == "running" && !j.Since.IsZero():
		return fmt.Sprintf("running for %s; its lease ends %s", cli.Since(j.Since, now), cli.Until(j.Until, now))
	case j.State == "running":
		return "running; its lease ends " + cli.Until(j.Until, now)
	case j.State == "delayed" && !j.Until.IsZero():
		return "delayed until " + cli.Clock(j.Until) + ", " + cli.Until(j.Until, now)
	case j.State == "dead":
		return "dead since " + cli.Clock(j.DiedAt)
	case j.State == "done":
		return "done at " + cli.Clock(j.FinishedAt)
	case j.WaitsFor != "":
		return j.State + ": " + j.WaitsFor
	}
	return j.State
}

// next suggests what can be done with it.
func (j *shownJob) next(queue string) string {
	switch j.State {
	case "dead":
		return fmt.Sprintf("\nNext: penstock dead retry %s %d\n  or: penstock dead discard %[1]s %[2]d\n", shell.Word(queue), j.ID)
	case "delayed":
		return fmt.Sprintf("\nNext: penstock job retry %s %d\n  or: penstock job cancel %[1]s %[2]d\n", shell.Word(queue), j.ID)
	}
	return ""
}
