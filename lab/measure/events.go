package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Ways to fetch the next event: statements of events.sql.
const (
	naive  = "naive"
	lastTS = "last_ts"
	next   = "next" // Penstock's
)

// events are the same events in a table and in a queue.
type events struct {
	Database
	name  string
	queue contender
	sql   statements
	// The timestamp of the last event consumed, as the server sends it and as text.
	last     []byte
	lastText string
}

func newEvents(db Database, name string) *events {
	queue := db.words(db.Name + "_" + name + "_queue")
	queue["order"] = literal("fifo")
	words := db.words(db.Name + "_" + name + "_events")
	words["queue"], words["queue_name"] = queue["table"], queue["name"]
	return &events{
		Database: db, name: name, sql: readSQL("events", words),
		queue: contender{Database: db, label: "the queue of events", sql: readSQL("penstock", queue)},
	}
}

func (e *events) create(s *session) error {
	for _, step := range []string{e.sql["create"], e.sql["index"], e.queue.sql["create"]} {
		if _, err := s.do("making the events", step); err != nil {
			return errors.Join(err, e.remove(s.ctx))
		}
	}
	return nil
}

func (e *events) remove(ctx context.Context) error {
	table := contender{Database: e.Database, label: "the events", sql: e.sql}
	return errors.Join(table.remove(ctx), e.queue.remove(ctx))
}

// prepared is the name of this table's statement in the session.
func (e *events) prepared(name string) string { return e.name + " " + name }

func (e *events) fill(s *session, events int) error {
	if _, err := s.do("writing events", e.sql["fill_queue"], 0, 0); err != nil {
		return err
	}
	for from := 1; from <= events; from += fillChunk {
		to := min(from+fillChunk-1, events)
		for _, name := range []string{"fill", "fill_queue"} {
			if _, err := s.do("writing events", e.sql[name], from, to); err != nil {
				return err
			}
		}
		if err := e.queue.maintain(s); err != nil {
			return err
		}
	}
	if _, err := s.do("vacuuming the events", e.sql["filled"]); err != nil {
		return err
	}
	for _, name := range []string{naive, lastTS, next} {
		if _, err := s.conn.PgConn().Prepare(s.ctx, e.prepared(name), e.sql[name], nil); err != nil {
			return s.explain(name, err)
		}
	}
	if err := e.remember(s, 0); err != nil {
		return err
	}
	// One more job that is consumed at once: a fresh queue is also in use.
	if _, err := e.take(s, 1); err != nil {
		return err
	}
	for range 6 { // from the sixth on, plans are as they stay
		for _, name := range []string{naive, lastTS, next} {
			if _, err := e.fetch(s, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// remember takes the event of that id for the last one consumed.
func (e *events) remember(s *session, id int) error {
	rows, err := s.conn.Query(s.ctx, e.sql["last"], pgx.QueryResultFormats{pgx.BinaryFormatCode, pgx.TextFormatCode}, id)
	if err != nil {
		return s.explain("reading the last timestamp", err)
	}
	defer rows.Close()
	if rows.Next() {
		row := rows.RawValues()
		e.last, e.lastText = bytes.Clone(row[0]), string(row[1])
	}
	rows.Close()
	return rows.Err()
}

// consumeFirst consumes the first n events: of the table with the published DELETE,
// of the queue as a worker does.
func (e *events) consumeFirst(s *session, n int) error {
	if err := e.remember(s, n); err != nil {
		return err
	}
	if _, err := s.do("deleting events", e.sql["delete_first"], n); err != nil {
		return err
	}
	maintained := time.Now()
	for left := n; left > 0; {
		got, err := e.take(s, min(left, takes))
		if err != nil {
			return err
		}
		if got == 0 {
			return fmt.Errorf("dequeue found nothing though %d events are left to consume", left)
		}
		left -= got
		if left == 0 || time.Since(maintained) > keepEvery {
			maintained = time.Now()
			if err := e.queue.maintain(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// takes is how many jobs a worker dequeues at a time.
const takes = 100

func (e *events) take(s *session, n int) (got int, err error) {
	return got, s.value("dequeuing", e.sql["take"], &got, n)
}

// deleteScattered deletes every other event behind the first n.
func (e *events) deleteScattered(s *session, n int) error {
	for _, name := range []string{"delete_scattered", "delete_scattered_jobs"} {
		if _, err := s.do("deleting every other event", e.sql[name], n); err != nil {
			return err
		}
	}
	return e.queue.maintain(s)
}

// fetch asks for the next event and returns how many milliseconds that took. It
// takes place in a transaction that is rolled back, and is timed without begin and
// rollback.
func (e *events) fetch(s *session, method string) (ms float64, err error) {
	var params [][]byte
	if method == lastTS {
		params = [][]byte{e.last}
	}
	if err := s.say("begin"); err != nil {
		return 0, err
	}
	start := time.Now()
	rows, err := s.run(e.prepared(method), params...)
	ms = time.Since(start).Seconds() * 1000
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("the next event was not found (%s)", method)
	}
	return ms, errors.Join(err, s.say("rollback"))
}

// explain reports which pages a fetch asks for, and how long it took the server.
func (e *events) explain(s *session, method string) (pages Pages, ms float64, err error) {
	if err := s.say("begin"); err != nil {
		return pages, 0, err
	}
	defer func() { err = errors.Join(err, s.say("rollback")) }()
	before, err := e.blocks(s)
	if err != nil {
		return pages, 0, err
	}
	// The prepared one, because planning also reads pages.
	statement := "execute " + pgx.Identifier{e.prepared(method)}.Sanitize()
	if method == lastTS {
		statement += "(" + literal(e.lastText) + ")"
	}
	var text []byte
	if err := s.value("explaining", "explain (analyze, buffers, format json) "+statement, &text); err != nil {
		return pages, 0, err
	}
	after, err := e.blocks(s)
	if err != nil {
		return pages, 0, err
	}
	plan, err := parseExplain(text)
	pages = Pages{All: plan.Plan.Hit + plan.Plan.Read, Index: after.Index - before.Index, Heap: after.Heap - before.Heap}
	return pages, plan.ExecutionMS, err
}

func (e *events) blocks(s *session) (p Pages, err error) {
	if err := s.conn.QueryRow(s.ctx, e.sql["blocks"]).Scan(&p.Index, &p.Heap); err != nil {
		return p, s.explain("reading the statistics", err)
	}
	return p, nil
}

// explained is what EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) says of a whole statement.
type explained struct {
	Plan struct {
		Hit  int64 `json:"Shared Hit Blocks"`
		Read int64 `json:"Shared Read Blocks"`
	}
	ExecutionMS float64 `json:"Execution Time"`
}

func parseExplain(text []byte) (explained, error) {
	var all []explained
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 1 {
		return explained{}, fmt.Errorf("EXPLAIN's answer cannot be read: %w", errors.Join(err, errors.New(string(text))))
	}
	return all[0], nil
}
