package postgres

import (
	"context"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/pg"
)

// planned is a transaction in which the plans of lookups do not depend on statistics.
func (s *Store) planned(ctx context.Context, f func(tx pgx.Tx) error) error {
	return s.within(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, planSettings); err != nil {
			return err
		}
		return f(tx)
	})
}

// lookUp is list in such a transaction.
func lookUp[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) (all []T, err error) {
	err = s.planned(ctx, func(tx pgx.Tx) (err error) {
		all, err = list(ctx, tx, scan, sql, args...)
		return err
	})
	return all, err
}

const planSettings = "set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_hashjoin = off; set local max_parallel_workers_per_gather = 0; set local jit = off"

// FindMessages looks for messages in an outbox, among its parked messages and among its dead letters. With a key, or an id that a
// producer gave, it looks at the latest 20,000 of each.
func (s *Store) FindMessages(ctx context.Context, f admin.Find) ([]admin.Found, error) {
	if err := admin.ValidateLimit(f.Limit); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	ids, err := s.outboxIDs(ctx, s.pool, f.In)
	if err != nil {
		return nil, err
	}
	var seq pgtype.Int8
	if n, _, ok := ids.Parse(f.ID); ok {
		seq = pgtype.Int8{Int64: n, Valid: true}
	}
	var all []admin.Found
	err = s.planned(ctx, func(tx pgx.Tx) error {
		of, err := s.subscriptionsOf(ctx, tx, f.In)
		if err != nil {
			return err
		}
		if len(of) == 0 {
			of = []subscription{{}}
		}
		for _, sub := range of {
			args := []any{sub.ID, seq, orNull(f.ID), orNull(f.Key), f.Limit, nil, nil, 0, "{}"}
			h, began, err := s.headOf(ctx, tx, sub.ID)
			if err != nil {
				return err
			}
			if c := h.cursor; began {
				args = append(args[:5], c.done.snap, orNull(c.upto.snap), c.pos, string(multirange(c.ahead)))
			}
			found, err := list(ctx, tx, scanFound, statement("find_messages", s.schema, f.In), args...)
			if err != nil {
				return err
			}
			for _, one := range found {
				m := &one.Message
				if m.ID == "" {
					m.ID = ids.ID(m.Seq, m.CreatedAt)
				}
				if f.ID != "" && m.ID != f.ID { // another cluster's message of that seq
					continue
				}
				one.Where[0].Subscription = sub.Name
				if i := slices.IndexFunc(all, func(have admin.Found) bool { return have.Message.Seq == m.Seq }); i >= 0 {
					all[i].Where = append(all[i].Where, one.Where...)
				} else {
					all = append(all, one)
				}
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b admin.Found) int { return int(b.Message.Seq - a.Message.Seq) })
	return all, s.explain(err)
}

func scanFound(row pgx.CollectableRow) (f admin.Found, err error) {
	var (
		m    = &f.Message
		w    admin.Whereabouts
		rest kept
	)
	if err := row.Scan(&m.Seq, &m.CreatedAt, (*zeronull.Text)(&m.ID), (*zeronull.Text)(&m.Key), &m.Topic, &rest.headers, &m.Payload, &w.State, &w.Attempts, &rest.failures, (*zeronull.Timestamptz)(&w.Until), (*zeronull.Timestamptz)(&w.DiedAt)); err != nil {
		return f, err
	}
	w.Until, w.DiedAt = w.Until.UTC(), w.DiedAt.UTC()
	rest.fill(&f, w)
	return f, nil
}

// kept has the columns that messages and jobs share, as they are stored.
type kept struct{ headers, failures []byte }

func (k *kept) fill(f *admin.Found, w admin.Whereabouts) {
	var unread error
	f.Message.CreatedAt = f.Message.CreatedAt.UTC()
	if len(k.headers) > 0 {
		f.Message.Headers, unread = decodeHeaders(k.headers)
		f.Message.Headers, w.Report = withoutReport(f.Message.Headers)
	}
	var h pg.History
	h.Parse(k.failures)
	w.Failures = withUnread(append([]penstock.Failure{}, h.Failures...), w.Attempts, unread)
	f.Where = []admin.Whereabouts{w}
}

// FindJobs looks for jobs of a queue, in every state.
func (s *Store) FindJobs(ctx context.Context, f admin.Find) (all []admin.Found, err error) {
	if err := admin.ValidateLimit(f.Limit); err != nil {
		return nil, err
	}
	if err := s.mayCall(ctx, f.In, "count", "null"); err != nil {
		return nil, err
	}
	var id pgtype.Int8
	if f.ID != "" {
		if id.Int64, err = strconv.ParseInt(f.ID, 10, 64); err != nil {
			return nil, &penstock.FieldError{Field: "id", Problem: "is not a number", Hint: "give the number of a job"}
		}
		id.Valid = true
	}
	all, err = lookUp(ctx, s, func(row pgx.CollectableRow) (admin.Found, error) { return foundJob(row) }, statement("find_jobs", s.schema, f.In), f.In, id, orNull(f.Key), f.Group, f.Limit)
	for i := range all {
		if w := &all[i].Where[0]; w.State == "waiting for barriers" {
			w.WaitsFor, w.Worker = w.Worker, ""
		}
	}
	return all, s.queueError(ctx, f.In, err)
}
