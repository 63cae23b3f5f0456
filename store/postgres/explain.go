package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/pg"
)

var _ doctor.Explainer = (*Store)(nil)

// How much is fetched and claimed, as relays and workers do under load; and how long that may take.
const (
	explainedRows    = 1000
	explainedJobs    = 100
	explainedTimeout = "set local statement_timeout = '60s'"
	explainer        = "penstock explain" // the worker's name while it claims
)

// ExplainOutbox implements doctor.Explainer: the next statements of each subscription's relay.
func (s *Store) ExplainOutbox(ctx context.Context, outbox string) ([]doctor.Statement, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	e, err := s.newExplanation(ctx, outbox)
	if err != nil {
		return nil, err
	}
	defer closeConn(e.conn)
	if !e.there {
		return nil, noOutbox(outbox)
	}
	subscriptions, err := s.subscriptionsOf(ctx, e.conn, outbox)
	if err != nil {
		return nil, explain(err)
	}
	if _, err := e.conn.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, explain(err)
	}
	for _, sub := range subscriptions {
		e.of = outbox + "/" + sub.Name
		if err := e.twice(ctx, func(tx pgx.Tx) error { return e.subscription(ctx, tx, outbox, sub.ID) }); err != nil {
			return nil, explain(err)
		}
	}
	return e.found, nil
}

// ExplainQueue implements doctor.Explainer: the statements of consumers and workers, for the first group that has jobs.
// The queue sees a worker that takes jobs in a transaction that rolls back.
func (s *Store) ExplainQueue(ctx context.Context, queue string) ([]doctor.Statement, error) {
	found, err := s.explainQueue(ctx, queue)
	if sqlState(err) == "42501" { // a worker's role may claim, but not see which leases it got
		if hinted, ok := errors.AsType[*penstock.HintError](err); ok {
			err = hinted.Err
		}
		err = penstock.WithHint(err, "%s", onlyOwner)
	}
	return found, err
}

func (s *Store) explainQueue(ctx context.Context, queue string) ([]doctor.Statement, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	e, err := s.newExplanation(ctx, queue)
	if err != nil {
		return nil, err
	}
	defer closeConn(e.conn)
	e.of = queue
	q := s.Queue(queue)
	var group string
	err = e.conn.QueryRow(ctx, q.ready, nil, "", 1).Scan(&group)
	if err != nil && err != pgx.ErrNoRows {
		return nil, queueError(err, queue)
	}
	err = e.twice(ctx, func(tx pgx.Tx) error {
		return e.explain(ctx, tx, "dequeue", "select * from "+s.table("dequeue")+"("+pg.Literal(queue)+", 1, "+pg.Literal(group)+")")
	})
	if err != nil && sqlState(err) != "0A000" { // of a queue that limits how many jobs run
		return nil, queueError(err, queue)
	}
	err = e.twice(ctx, func(tx pgx.Tx) error {
		claim := fmt.Sprintf("select * from %s(%d, interval '1 min', %s, %s, null)", s.table("_"+queue+".claim"), explainedJobs, pg.Literal(group), pg.Literal(explainer))
		if err := e.explain(ctx, tx, "claim", claim); err != nil {
			return err
		}
		var leases string
		if err := tx.QueryRow(ctx, "select coalesce(array_agg(lease)::text, '{}') from "+s.table("_lease")+" where worker = $1", explainer).Scan(&leases); err != nil {
			return err
		}
		return e.explain(ctx, tx, "ack", "select * from "+s.table("_"+queue+".ack")+"('"+leases+"'::bigint[])")
	})
	return e.found, queueError(err, queue)
}

// explanation runs statements on a separate connection.
type explanation struct {
	conn   *pgx.Conn
	schema string
	pages  int64 // of the table with its segments and indexes
	there  bool
	of     string
	found  []doctor.Statement
	extra  int64 // rows that a statement returns about itself
	first  bool  // time, which fills the session's caches
	cold   []doctor.Statement
	store  *Store

	prepared int
}

func (s *Store) newExplanation(ctx context.Context, table string) (*explanation, error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	e := &explanation{conn: conn, schema: s.schema, store: s}
	err = conn.QueryRow(ctx, `select to_regclass($2) is not null, coalesce((select sum(pg_total_relation_size(i.inhrelid)) from pg_inherits i where i.inhparent = to_regclass($1)), 0)::bigint
		/ current_setting('block_size')::bigint`, s.table(table), s.table("_"+table+".slot")).Scan(&e.there, &e.pages)
	if err != nil {
		closeConn(conn)
		return nil, explain(err)
	}
	return e, nil
}

// twice runs statements in a transaction that is rolled back: their first reads of catalogs are not theirs.
func (e *explanation) twice(ctx context.Context, f func(tx pgx.Tx) error) error {
	e.cold = nil
	for _, e.first = range []bool{true, false} {
		tx, err := e.conn.Begin(ctx)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, explainedTimeout)
		if err == nil {
			err = f(tx)
		}
		if after := tx.Rollback(ctx); err == nil {
			err = after
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// subscription fetches from where the durable cursor is, and writes it anew.
func (e *explanation) subscription(ctx context.Context, tx pgx.Tx, outbox string, id int64) error {
	h, _, err := e.store.headOf(ctx, tx, id)
	if err != nil {
		return err
	}
	c, n := h.cursor, number
	e.extra = 1 // the snapshot's
	text, params := "poll", [][]byte{n(c.done.low), []byte(c.done.xip()), []byte(c.done.snap), n(explainedRows), n(id)}
	if c.paging() {
		var high int64
		if err := tx.QueryRow(ctx, "select coalesce(pg_sequence_last_value("+pg.Literal(pgx.Identifier{e.schema, "_" + outbox + ".seq"}.Sanitize())+"), 0)").Scan(&high); err != nil {
			return err
		}
		e.extra = 0
		text, params = "page", [][]byte{n(c.done.low), []byte(c.done.xip()), []byte(c.done.snap), n(c.pos), []byte(c.upto.snap), n(high), n(explainedRows)}
	}
	if err := e.execute(ctx, tx, "fetch", statement(text, e.schema, outbox), params); err != nil {
		return err
	}
	e.extra = 0
	var pid int64
	if err := tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
		return err
	}
	src := &Source{id: id, epoch: h.epoch, since: h.since, req: driver.Subscribe{Holder: h.holder}}
	write := src.cursorParams(&session{writer: backend{pid: pid}}, c, h.count, time.Minute)
	return e.execute(ctx, tx, "settle", statement("write_cursor", e.schema, outbox), write)
}

// execute explains a statement as the relay runs it: prepared, with one plan for all parameters.
func (e *explanation) execute(ctx context.Context, tx pgx.Tx, name, sql string, params [][]byte) error {
	values := make([]string, len(params))
	for i, p := range params {
		if values[i] = "null"; p != nil {
			values[i] = pg.Literal(string(p))
		}
	}
	e.prepared++
	as := "_penstock_explain_" + strconv.Itoa(e.prepared)
	if _, err := tx.Exec(ctx, "prepare "+as+" as "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	return e.explain(ctx, tx, name, "execute "+as+" ("+strings.Join(values, ", ")+")")
}

// explain runs a statement, and compares the transaction's reads before and after it.
func (e *explanation) explain(ctx context.Context, tx pgx.Tx, name, sql string) error {
	before, err := e.read(ctx, tx)
	if err != nil {
		return err
	}
	var text string
	if err := tx.QueryRow(ctx, "explain (analyze, format json) "+sql, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		return err
	}
	after, err := e.read(ctx, tx)
	if err != nil {
		return err
	}
	var plans []struct {
		Plan struct {
			Rows float64 `json:"Actual Rows"`
		}
		Time float64 `json:"Execution Time"` // ms
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil || len(plans) != 1 {
		return fmt.Errorf("EXPLAIN of %s: %s: %w", name, strconv.Quote(text), err)
	}
	p := plans[0].Plan
	s := doctor.Statement{Of: e.of, Name: name, RoundTrips: 1, Measured: true, Rows: int64(p.Rows), TablePages: e.pages, Seconds: plans[0].Time / 1e3}
	s.Rows -= e.extra
	most := int64(-1)
	for _, r := range after {
		for _, was := range before {
			if was.Name == r.Name {
				r.Returned, r.Fetched, r.Blocks = r.Returned-was.Returned, r.Fetched-was.Fetched, r.Blocks-was.Blocks
			}
		}
		if r.Index {
			s.Entries += r.Returned
			s.Dead += max(r.Returned-r.Fetched, 0)
		} else {
			s.Scanned += r.Returned
		}
		s.Pages += r.Blocks // and none of the catalogs, which a busy server has sessions read again
		if reads := r.Returned + r.Blocks; reads > most {
			most, s.Busiest = reads, r.Name
		}
	}
	if e.first {
		e.cold = append(e.cold, s)
		return nil
	}
	cold := e.cold[0]
	e.cold = e.cold[1:]
	if cold.Entries > s.Entries { // the first pass reads entries that no snapshot needs again, and marks them
		s.Entries, s.Dead, s.Busiest = cold.Entries, cold.Dead, cold.Busiest
	}
	s.Judge()
	e.found = append(e.found, s)
	return nil
}

// relationRead counts the reads of a table or index.
type relationRead struct {
	Name                      string
	Index                     bool
	Returned, Fetched, Blocks int64
}

func (e *explanation) read(ctx context.Context, tx pgx.Tx) ([]relationRead, error) {
	return list(ctx, tx, pgx.RowToStructByPos[relationRead], statement("read_in_transaction", e.schema, ""), pgx.QueryExecModeExec, pgx.Identifier{e.schema}.Sanitize())
}
