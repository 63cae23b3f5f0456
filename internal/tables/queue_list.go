package tables

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/pg"
)

// ListJobs lists the jobs of a queue that are in one state, without payloads. Next first, the ready jobs of a group come by priority and in the queue's
// order. Running ones then come as their leases end, delayed ones by their times, and waiting ones by their ids. Newest first, running ones come by the
// ends of their leases, and others by their ids. It looks at all jobs, as QueueStatus does.
func (s *Queues) ListJobs(ctx context.Context, q admin.JobQuery) (page admin.JobPage, err error) {
	if err := q.Validate(); err != nil {
		return page, err
	}
	row, err := s.lookAgain(ctx, q.Queue)
	if err != nil {
		return page, err
	}
	var place [3]int64 // of a job in the list
	behind, by, than := SQL("true"), SQL("o.a, o.b, o.c"), ">"
	if q.Newest {
		by, than = "o.a desc, o.b desc, o.c desc", "<"
	}
	if q.After != "" {
		if _, err := fmt.Sscanf(q.After, "%d.%d.%d", &place[0], &place[1], &place[2]); err != nil {
			return page, &penstock.FieldError{Field: "after", Problem: "is not a position", Hint: "give the next that came with the page before"}
		}
		behind = SQL(fmt.Sprintf("(o.a, o.b, o.c) %s (%d, %d, %d)", than, place[0], place[1], place[2]))
	}
	args := row.Args(Args{"state": SQL("'" + q.State + "'"), "newest": word(q.Newest), "grouped": word(q.State == "ready" || q.Group != ""), "group": q.Group,
		"kind": q.Kind, "key": q.Key, "created_before": OrNull(q.CreatedBefore), "created_after": OrNull(q.CreatedAfter),
		"behind": behind, "by": by, "most": q.Limit})
	err = s.on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var f admin.Found
		var w admin.Whereabouts
		var headers, failures []byte
		var until, since *time.Time
		m := &f.Message
		if err := scan(&m.Seq, &m.Key, &f.Group, &f.Priority, &m.CreatedAt, &headers, &w.Attempts, &failures, &w.Worker, &until, &since, &w.State, &place[0], &place[1], &place[2]); err != nil {
			return err
		}
		m.ID, m.CreatedAt, m.Headers = strconv.FormatInt(m.Seq, 10), m.CreatedAt.UTC(), Headers(headers)
		h := pg.History{Attempt: w.Attempts}
		h.Parse(failures)
		w.Failures = h.Failures
		switch w.State {
		case "running":
			w.Since, w.Until = timeOf(since), timeOf(until)
		case "delayed":
			w.Until = timeOf(until)
		case "waiting":
			w.State = "behind its key"
		}
		if w.State != "running" {
			w.Worker = ""
		}
		f.Where = []admin.Whereabouts{w}
		page.Jobs = append(page.Jobs, f)
		page.Next = fmt.Sprintf("%d.%d.%d", place[0], place[1], place[2])
		return nil
	}, "list_jobs", args))
	if page.Looked = len(page.Jobs); page.Looked < q.Limit {
		page.Next = ""
	}
	return page, s.orNoQueue(err, q.Queue)
}

func word(b bool) SQL { return SQL(strconv.FormatBool(b)) }
