package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// lookedAt is how many jobs one call of ListJobs looks at if a filter narrows the choice: only the order has an index.
const lookedAt = 5000

// ListJobs lists the jobs of a queue that are in one state, without payloads. Next first, the ready jobs of a group come in the order in which they
// run. Running ones then come as their leases end, delayed ones by their times, and waiting ones by their ids. Newest first, ready, delayed and waiting ones come
// by their ids, and running ones by their leases, those that end last at first.
func (s *Store) ListJobs(ctx context.Context, q admin.JobQuery) (page admin.JobPage, err error) {
	if err := q.Validate(); err != nil {
		return page, err
	}
	if err := s.mayCall(ctx, q.Queue, "count", "null"); err != nil {
		return page, err
	}
	group := orNull(q.Group)
	if q.State == "ready" {
		group = &q.Group
	}
	first, second, err := pageAfter(q.After)
	if err != nil {
		return page, err
	}
	look := q.Limit
	if q.Filters() {
		look = lookedAt
	}
	var looked int64 // and the position of the last of them
	var last string
	err = s.planned(ctx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, statement("list_"+q.State, s.schema, q.Queue), q.Queue, group, first, second, q.Limit, look, q.Newest,
			orNull(q.Kind), orNull(q.Key), orNullTime(q.CreatedBefore), orNullTime(q.CreatedAfter))
		defer rows.Close()
		for rows.Next() {
			job, err := foundJob(rows, &last, &looked)
			if err != nil {
				return err
			}
			if looked == 0 {
				page.Jobs, page.Next = append(page.Jobs, job), last
			}
		}
		return rows.Err()
	})
	page.Looked = int(looked)
	switch full := len(page.Jobs) == q.Limit; {
	case page.Looked == look && !full: // others may match
		page.Next = last
	case !full:
		page.Next = ""
	}
	return page, s.queueError(ctx, q.Queue, err)
}

// pageAfter reads where a page begins: two numbers, or nil for the first page.
func pageAfter(after string) (first, second any, err error) {
	if after == "" {
		return nil, nil, nil
	}
	one, two, _ := strings.Cut(after, ".")
	a, err := strconv.ParseInt(one, 10, 64)
	b, again := strconv.ParseInt(two, 10, 64)
	if err != nil || again != nil {
		return nil, nil, &penstock.FieldError{Field: "after", Problem: "is not a position", Hint: "give the next that came with the page before"}
	}
	return a, b, nil
}

// foundJob reads a row of find_jobs or, with its position, of a list.
func foundJob(row pgx.CollectableRow, more ...any) (f admin.Found, err error) {
	var (
		m    = &f.Message
		w    admin.Whereabouts
		rest kept
	)
	columns := []any{&m.Seq, (*zeronull.Text)(&m.Key), &f.Group, &f.Priority, &w.Attempts, &m.CreatedAt, &rest.headers, &m.Payload, &rest.failures, &w.State, &w.Worker, (*zeronull.Timestamptz)(&w.Until), (*zeronull.Timestamptz)(&w.Since)}
	if err := row.Scan(slices.Concat(columns, more)...); err != nil {
		return f, fmt.Errorf("a job: %w", err)
	}
	m.ID = strconv.FormatInt(m.Seq, 10)
	w.Attempts = max(w.Attempts, 0) // a job that was given back for a while in its first attempt has -1
	w.Since = w.Since.UTC()
	if w.Until = w.Until.UTC(); w.State == "dead" {
		w.DiedAt, w.Until = w.Until, time.Time{}
	}
	rest.fill(&f, w)
	return f, nil
}
