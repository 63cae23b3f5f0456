package portable

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/tables"
)

var _ doctor.Explainer = (*Store)(nil)

// How much is fetched and claimed, as relays and workers do under load.
const (
	explainedRows = 1000
	explainedJobs = 100
	explainer     = "penstock explain" // the worker's name while it claims
)

// explanation runs statements under EXPLAIN on one connection, in transactions that are rolled back.
type explanation struct {
	store   *Store
	conn    *pgx.Conn
	options string
	of      string
	pages   int64
	found   []doctor.Statement
}

// explaining finds out which options of EXPLAIN the server knows.
func (s *Store) explaining(ctx context.Context, of, table string, f func(e *explanation) error) ([]doctor.Statement, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	defer conn.Release()
	e := &explanation{store: s, conn: conn.Conn(), of: of}
	for _, e.options = range s.dialect().plan.options {
		var rows pgx.Rows
		if rows, err = e.conn.Query(ctx, "explain "+e.options+" select 1", pgx.QueryExecModeSimpleProtocol); err == nil {
			rows.Close()
			err = rows.Err()
		}
		if pgerror.State(err) == "" { // or it does not know an option
			break
		}
	}
	if err == nil {
		e.pages, err = s.bytes(ctx, table)
		e.pages /= 8192
	}
	if err == nil {
		err = f(e)
	}
	return e.found, s.explain(err)
}

// undone runs f in a transaction that is rolled back.
func (e *explanation) undone(ctx context.Context, f func(tx pgx.Tx) error) error {
	return e.store.retries.Do(ctx, func() error {
		kept := len(e.found)
		tx, err := e.conn.Begin(ctx)
		if err != nil {
			return err
		}
		err = f(tx)
		if err != nil {
			e.found = e.found[:kept]
		}
		return errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
	})
}

// explain runs a statement with its parameters written into it: not every engine takes them in EXPLAIN. rows is how many it is about, -1 how many it returns.
func (e *explanation) explain(ctx context.Context, tx pgx.Tx, name, sql string, rows int64, params ...any) error {
	answer, _ := tx.Query(ctx, "explain "+e.options+" "+sql, append([]any{pgx.QueryExecModeSimpleProtocol}, params...)...)
	lines, err := pgx.CollectRows(answer, pgx.RowTo[string])
	if err != nil {
		return err
	}
	s := doctor.Statement{Of: e.of, Name: name, RoundTrips: 1, Measured: true, Rows: rows, TablePages: e.pages}
	if err := e.store.dialect().plan.read(strings.Join(lines, "\n"), &s); err != nil {
		return err
	}
	s.Judge()
	e.found = append(e.found, s)
	return nil
}

// ExplainOutbox implements doctor.Explainer: the statements with which each subscription's relay would fetch next, and settle.
func (s *Store) ExplainOutbox(ctx context.Context, outbox string) ([]doctor.Statement, error) {
	if err := s.guard.Ready(ctx); err != nil {
		return nil, err
	}
	box, err := tables.FindOutbox(ctx, onTables{s}, onTables{s}, outbox, "")
	if err != nil {
		return nil, s.explain(err)
	}
	return s.explaining(ctx, outbox, s.sql("{table}", outbox), func(e *explanation) error {
		type subscription struct {
			ID, Epoch int64
			Name      string
			Holder    string
			Low       time.Time
			Keeps     bool
		}
		rows, _ := e.conn.Query(ctx, s.sql("select id, epoch, name, holder, low, keeps_settled from {schema}.subscriptions where outbox_id = $1 order by name", ""), box.ID)
		subscriptions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[subscription])
		if err != nil {
			return err
		}
		for _, sub := range subscriptions {
			e.of = outbox + "/" + sub.Name
			if err := e.undone(ctx, func(tx pgx.Tx) error {
				low, as := sub.Low.UTC(), &source{store: s, Reader: &tables.Reader{Box: box, ID: sub.ID, Epoch: sub.Epoch, Attempt: -1, Req: driver.Subscribe{Holder: sub.Holder}}}
				fetch, params := s.rendered("fetch", as.owning(nil, tables.Args{"low": low, "in_flight": []int64{}, "per": min(explainedRows, 2*explainedRows/box.Buckets+8), "most": explainedRows,
					"bytes": s.dialect().most(16 << 20), "reads": as.reads(), "times": []time.Time{}}))
				if err := e.explain(ctx, tx, "fetch", fetch, -1, params...); err != nil {
					return err
				}
				rows, _ := tx.Query(ctx, fetch, params...)
				var r tables.Row
				var behind bool
				var parts []*tables.Part
				if _, err := pgx.ForEachRow(rows, r.Dest(&behind), func() error {
					flight := r.Flight
					parts = append(parts, &tables.Part{Msg: &penstock.Message{Seq: r.Seq}, Flight: &flight})
					return nil
				}); err != nil || len(parts) == 0 {
					return err
				}
				statement := "delete"
				if sub.Keeps {
					statement = "keep_settled"
				}
				about := as.About(tables.RowsOf(parts))
				if err := (pgTx{tx, s}).Run(ctx, new(tables.Batch).Do("progress", about.With(tables.Args{"settled": len(parts)}))); err != nil {
					return err
				}
				text, args := s.rendered(statement, about)
				return e.explain(ctx, tx, "settle", text, int64(len(parts)), args...)
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// ExplainQueue implements doctor.Explainer: the statements of workers, for the first group that has jobs. The queue sees a worker that takes
// jobs in a transaction that rolls back.
func (s *Store) ExplainQueue(ctx context.Context, name string) ([]doctor.Statement, error) {
	known, err := s.queues.Queue(name).Row(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := s.queues.Queue(name).ReadyGroups(ctx, nil, "", 1)
	if err != nil {
		return nil, err
	}
	group := ""
	if len(groups) > 0 {
		group = groups[0]
	}
	seen, want := tables.NewSeen(known.LIFO()), driver.Claim{Group: group, Jobs: explainedJobs}
	return s.explaining(ctx, name, s.jobsTable(name), func(e *explanation) error {
		claim := s.claimSQL(known, known.Round(want, onTables{s}.Looks(), explainedJobs))
		params := func(r *tables.Round) []any {
			priorities, after, upto := columns(r.Ranges)
			return []any{known.ID, group, explainedJobs, time.Minute.Microseconds(), explainer, priorities, after, upto, explainedJobs, false, r.Room, r.Keys, int64(0), r.Checked, r.Tried, r.Alone, r.Spare}
		}
		look := func() *tables.Round { return seen.Round(want, onTables{s}.Looks(), explainedJobs) }
		// A worker that has run for a while knows where no jobs are left: so the first claim only looks.
		if err := e.undone(ctx, func(tx pgx.Tx) error {
			r := look()
			if err := tx.QueryRow(ctx, "select clock_timestamp()").Scan(&r.Now); err != nil {
				return err
			}
			rows, _ := tx.Query(ctx, claim, params(r)...)
			if err := readClaimed(rows, group, &r.Page); err != nil {
				return err
			}
			for i := range r.Page {
				r.Page[i].Job.Lease = 0
			}
			r.Note(true)
			return nil
		}); err != nil {
			return err
		}
		return e.undone(ctx, func(tx pgx.Tx) error {
			if err := e.explain(ctx, tx, "claim", claim, -1, params(look())...); err != nil {
				return err
			}
			rows, _ := tx.Query(ctx, s.sql("select lease from {schema}.leases where queue_id = $1 and worker = $2", ""), known.ID, explainer)
			leases, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil || len(leases) == 0 {
				return err
			}
			text, args := s.rendered("end_jobs", known.Args(tables.Args{"leases": leases}))
			return e.explain(ctx, tx, "ack", text, int64(len(leases)), args...)
		})
	})
}
