package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// TombstonesConfig is one run of tombstones.
type TombstonesConfig struct {
	Setup
	Events  int  `help:"events, of which the first half is consumed" range:"10.."`
	Fetches int  `help:"fetches per measurement, fewer if they take more than 5 s" range:"1.."`
	Pin     bool `help:"also with a REPEATABLE READ snapshot held open"`
}

// TombstonesResult has a case without a pin and one with.
type TombstonesResult struct {
	Cases []TombstoneCase `json:"cases"`
	// WorstRatio is the largest of Penstock's.
	WorstRatio float64 `json:"worst_ratio"`
}

// TombstoneCase is how the next event is found after the deletions.
type TombstoneCase struct {
	Pinned   bool      `json:"pinned"`
	Naive    NextEvent `json:"naive"`   // order by ts limit 1
	LastTS   NextEvent `json:"last_ts"` // where ts > the last one's
	Penstock NextEvent `json:"penstock"`
}

// NextEvent is the cost of fetching one. Pages, those of the catalogue included, are what EXPLAIN (ANALYZE, BUFFERS) reports.
type NextEvent struct {
	FreshMS    float64 `json:"fresh_ms"` // from a table of which nothing was deleted, the median
	MS         float64 `json:"ms"`       // the median
	Ratio      float64 `json:"ratio"`    // MS over FreshMS
	Fetches    int     `json:"fetches"`
	FreshPages int64   `json:"fresh_pages"`
	FirstPages int64   `json:"first_pages"` // of the first fetch after the deletions
	Pages      int64   `json:"pages"`
}

// DefaultTombstones is measured unless flags say otherwise.
var DefaultTombstones = TombstonesConfig{Events: 1_000_000, Fetches: 200}

// Tombstones measures how the next of many events is found once others are gone.
func Tombstones(ctx context.Context, cfg TombstonesConfig) (result TombstonesResult, err error) {
	s, err := cfg.connect(ctx)
	if err != nil {
		return result, err
	}
	defer s.close()
	err = cfg.withEvents(ctx, s, "fresh", func(fresh *events) error {
		if err := cfg.round(ctx, s, fresh, false, &result); err != nil || !cfg.Pin {
			return err
		}
		return cfg.round(ctx, s, fresh, true, &result)
	})
	return result, err
}

// round consumes the first half, and measures.
func (cfg TombstonesConfig) round(ctx context.Context, s *session, fresh *events, pinned bool, result *TombstonesResult) error {
	release, err := cfg.pinned(ctx, pinned)
	if err != nil {
		return err
	}
	defer release()
	return cfg.withEvents(ctx, s, map[bool]string{false: "used", true: "pinned"}[pinned], func(used *events) (err error) {
		cfg.progress("deleting, pinned: %v", pinned)
		if err := used.consumeFirst(s, cfg.Events/2); err != nil {
			return err
		}
		c := TombstoneCase{Pinned: pinned}
		for i, into := range []*NextEvent{&c.Naive, &c.LastTS, &c.Penstock} {
			cfg.progress("fetching, pinned: %v, %s", pinned, ways[i])
			if *into, err = cfg.compare(s, fresh, used, ways[i]); err != nil {
				return err
			}
		}
		result.Cases = append(result.Cases, c)
		result.WorstRatio = max(result.WorstRatio, c.Penstock.Ratio)
		return nil
	})
}

// compare fetches from both in turns, so that whatever else the machine does meets
// both.
func (cfg TombstonesConfig) compare(s *session, fresh, used *events, method string) (e NextEvent, err error) {
	if e.FirstPages, err = used.pages(s, method); err != nil {
		return e, err
	}
	fetch := func(from *events) func() (float64, error) {
		return func() (float64, error) { return from.fetch(s, method) }
	}
	var took, freshTook []float64
	for until := time.Now().Add(5 * time.Second); len(took) < cfg.Fetches && (len(took) < 5 || time.Now().Before(until)); {
		both, err := inTurns(1, fetch(fresh), fetch(used))
		if err != nil {
			return e, err
		}
		freshTook, took = append(freshTook, both[0]...), append(took, both[1]...)
	}
	e.MS, e.FreshMS, e.Fetches = median(took), median(freshTook), len(took)
	e.Ratio = over(e.MS, e.FreshMS)
	if e.Pages, err = used.pages(s, method); err != nil {
		return e, err
	}
	e.FreshPages, err = fresh.pages(s, method)
	return e, err
}

// Ways to fetch the next event: statements of events.sql.
const (
	naive  = "naive"
	lastTS = "last_ts"
	next   = "next" // Penstock's
)

var ways = []string{naive, lastTS, next}

// events are the same events in a table and in a queue.
type events struct {
	Setup
	name  string
	queue contender
	sql   statements
	// The timestamp of the last event consumed, as the server sends it and as text.
	last     []byte
	lastText string
}

// withEvents makes a table and a queue with the given number of events for do, and removes them.
func (cfg TombstonesConfig) withEvents(ctx context.Context, s *session, name string, do func(*events) error) (err error) {
	queue := "_" + name + "_queue"
	words := cfg.words(cfg.Name + "_" + name + "_events")
	own := cfg.words(cfg.Name + queue)
	words["queue"], words["queue_name"] = own["table"], own["name"]
	e := &events{Setup: cfg.Setup, name: name, sql: readSQL("events", words), queue: ownQueue(cfg.Setup, queue, penstock.FIFO)}
	table := contender{Setup: cfg.Setup, label: "the events", sql: e.sql}
	return table.in(ctx, func(*session) error {
		return e.queue.in(ctx, func(*session) error {
			cfg.progress("preparing %d events: %s", cfg.Events, name)
			if err := e.fill(s, cfg.Events); err != nil {
				return fmt.Errorf("preparing the events: %w", err)
			}
			return do(e)
		})
	})
}

// prepared is the name of this table's statement in the session.
func (e *events) prepared(name string) string { return e.name + " " + name }

func (e *events) fill(s *session, events int) error {
	err := errors.Join(s.do("indexing", e.sql["index"]), s.do("writing events", e.sql["fill_queue"], 0, 0))
	for from := 1; err == nil && from <= events; from += fillChunk {
		to := min(from+fillChunk-1, events)
		err = errors.Join(s.do("writing events", e.sql["fill"], from, to), s.do("writing events", e.sql["fill_queue"], from, to), e.queue.maintain(s))
	}
	if err = errors.Join(err, s.do("vacuuming the events", e.sql["filled"])); err != nil {
		return err
	}
	for _, name := range ways {
		if err := s.known(e.prepared(name), e.sql[name]); err != nil {
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
		for _, name := range ways {
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
	if err := s.do("deleting events", e.sql["delete_first"], n); err != nil {
		return err
	}
	maintained := time.Now()
	for left := n; left > 0; {
		got, err := e.take(s, min(left, 100))
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

func (e *events) take(s *session, n int) (got int, err error) {
	return got, s.value("dequeuing", e.sql["take"], &got, n)
}

// fetch asks for the next event and returns how many milliseconds that took. It
// takes place in a transaction that is rolled back, and is timed without begin and
// rollback.
func (e *events) fetch(s *session, method string) (ms float64, err error) {
	var params [][]byte
	if method == lastTS {
		params = [][]byte{e.last}
	}
	return ms, s.inTx("rollback", func() error {
		start := time.Now()
		rows, err := s.run(e.prepared(method), params...)
		ms = time.Since(start).Seconds() * 1000
		if err == nil && len(rows) != 1 {
			err = fmt.Errorf("the next event was not found (%s)", method)
		}
		return err
	})
}

// pages are how many a fetch asks for. The statement is the prepared one, because planning also reads pages.
func (e *events) pages(s *session, method string) (pages int64, err error) {
	statement := "execute " + pgx.Identifier{e.prepared(method)}.Sanitize()
	if method == lastTS {
		statement += "(" + literal(e.lastText) + ")"
	}
	return pages, s.inTx("rollback", func() error {
		var text []byte
		if err := s.value("explaining", "explain (analyze, buffers, format json) "+statement, &text); err != nil {
			return err
		}
		pages, err = parseExplain(text)
		return err
	})
}

// parseExplain reads the pages of a whole statement.
func parseExplain(text []byte) (pages int64, err error) {
	var all []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 1 {
		return 0, fmt.Errorf("EXPLAIN's answer cannot be read: %w", errors.Join(err, errors.New(string(text))))
	}
	return all[0].Plan.Hit + all[0].Plan.Read, nil
}
