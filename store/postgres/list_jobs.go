package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// ListJobs lists the jobs of a queue that are in one state, without payloads. The ready jobs of a group come in the order in which they run, running ones
// by their leases, delayed ones by their times, and waiting ones by their ids. next is where the next page begins, or empty at the end.
func (s *Store) ListJobs(ctx context.Context, q admin.JobQuery) (jobs []admin.Found, next string, err error) {
	if err := q.Validate(); err != nil {
		return nil, "", err
	}
	if err := s.mayCall(ctx, q.Queue, "count", "null"); err != nil {
		return nil, "", err
	}
	name, args := "list_scheduled", []any{q.Queue, map[string]string{"delayed": "delayed", "waiting": "behind its key"}[q.State]}
	switch q.State {
	case "ready":
		name, args = "list_ready", []any{q.Queue, q.Group}
	case "running":
		name, args = "list_running", []any{q.Queue}
	}
	first, second, err := pageAfter(q.After)
	if err != nil {
		return nil, "", err
	}
	err = s.within(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, planned); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, statement(name, s.schema, q.Queue), append(args, first, second, q.Limit)...)
		if err != nil {
			return err
		}
		jobs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (admin.Found, error) { return foundJob(row, &next) })
		return err
	})
	if len(jobs) < q.Limit {
		next = ""
	}
	return jobs, next, s.queueError(ctx, q.Queue, err)
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
		m        = &f.Message
		w        admin.Whereabouts
		priority int
		until    *time.Time
		rest     kept
	)
	columns := []any{&m.Seq, &rest.key, &f.Group, &priority, &w.Attempts, &m.CreatedAt, &rest.headers, &m.Payload, &rest.failures, &w.State, &w.Worker, &until}
	if err := row.Scan(slices.Concat(columns, more)...); err != nil {
		return f, fmt.Errorf("a job: %w", err)
	}
	m.ID = strconv.FormatInt(m.Seq, 10)
	if w.Until = utc(until); w.State == "dead" {
		w.DiedAt, w.Until = w.Until, time.Time{}
	}
	rest.fill(&f, w)
	return f, nil
}
