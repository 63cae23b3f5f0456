package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/store/mysql"
)

// TombstonesConfig is one run of tombstones.
type TombstonesConfig struct {
	Database
	// Pin holds a snapshot for the cases that have one. Nil: leave these out.
	Pin func(ctx context.Context) (release func(), err error)

	Events  int
	Fetches int           // per measurement, the median counts
	Longest time.Duration // of a measurement, of at least five fetches
}

// TombstonesResult has a case for each way to delete, without a pin and with one.
type TombstonesResult struct {
	Events int             `json:"events"`
	Cases  []TombstoneCase `json:"cases"`
	// WorstRatio is the largest of Penstock's.
	WorstRatio float64 `json:"worst_ratio"`
}

// TombstoneCase is how the next event is found after some deletions.
type TombstoneCase struct {
	Deleted string `json:"deleted"` // "prefix", or "scattered": also every other one of the rest
	Pinned  bool   `json:"pinned"`

	Naive    NextEvent  `json:"naive"`   // order by ts limit 1
	LastTS   NextEvent  `json:"last_ts"` // where ts > the last one's
	Penstock NextEvent  `json:"penstock"`
	Outbox   *NextEvent `json:"outbox,omitempty"` // of Penstock's, in MySQL
}

// NextEvent is the cost of fetching one.
type NextEvent struct {
	FreshMS float64 `json:"fresh_ms"` // from a table of which nothing was deleted, the median
	MS      float64 `json:"ms"`       // the median
	FirstMS float64 `json:"first_ms"` // the first after the deletions, as the server timed it
	Ratio   float64 `json:"ratio"`    // MS over FreshMS
	Fetches int     `json:"fetches"`

	FreshPages Pages `json:"fresh_pages"`
	Pages      Pages `json:"pages"`
	FirstPages Pages `json:"first_pages"`
}

// Pages that one fetch asks for, each counted as often as it is asked for. All of
// them, the catalogue's included, are what EXPLAIN (ANALYZE, BUFFERS) reports.
type Pages struct {
	All   int64 `json:"all"`
	Index int64 `json:"index"`
	Heap  int64 `json:"heap"`

	RocksDB *FetchCalls `json:"rocksdb,omitempty"` // instead, in MyRocks
}

// FetchCalls are RocksDB's of one fetch.
type FetchCalls struct {
	mysql.RocksDBCalls
	// Tombstones among what was skipped. Nil of Penstock's fetches, whose sessions do not count them.
	Tombstones *int64 `json:"tombstones,omitempty"`
}

// eventsTable is where the events are.
type eventsTable interface {
	create(s *session) error
	remove(ctx context.Context) error
	fill(s *session, events int) error
	consumeFirst(s *session, n int) error
	deleteScattered(s *session, n int) error
	fetch(s *session, method string) (ms float64, err error)
	explain(s *session, method string) (pages Pages, ms float64, err error)
}

// DefaultTombstones is measured unless flags say otherwise.
var DefaultTombstones = TombstonesConfig{Events: 1_000_000, Fetches: 200, Longest: 5 * time.Second}

// Validate refuses values that cannot be measured.
func (c TombstonesConfig) Validate() error {
	if c.Events < 10 || c.Fetches < 1 || c.Longest < 0 {
		return errors.New("--events must be at least 10, --fetches at least 1")
	}
	return nil
}

// Tombstones measures how the next of many events is found once others are gone.
func Tombstones(ctx context.Context, cfg TombstonesConfig) (result TombstonesResult, err error) {
	if err := cfg.Validate(); err != nil {
		return result, err
	}
	result.Events = cfg.Events
	s, err := cfg.connect(ctx)
	if err != nil {
		return result, err
	}
	defer s.close()
	err = cfg.withEvents(ctx, s, "fresh", func(fresh eventsTable) error {
		cases, err := cfg.round(ctx, s, fresh, false)
		result.Cases = cases
		if err != nil || cfg.Pin == nil {
			return err
		}
		release, err := cfg.Pin(ctx)
		if err != nil {
			return err
		}
		defer release()
		cases, err = cfg.round(ctx, s, fresh, true)
		result.Cases = append(result.Cases, cases...)
		return err
	})
	for _, c := range result.Cases {
		result.WorstRatio = max(result.WorstRatio, c.Penstock.Ratio)
		if c.Outbox != nil {
			result.WorstRatio = max(result.WorstRatio, c.Outbox.Ratio)
		}
	}
	return result, err
}

// round deletes, and measures after each time.
func (cfg TombstonesConfig) round(ctx context.Context, s *session, fresh eventsTable, pinned bool) (cases []TombstoneCase, err error) {
	table := "used"
	if pinned {
		table = "pinned"
	}
	return cases, cfg.withEvents(ctx, s, table, func(used eventsTable) error {
		for _, step := range []struct {
			deleted string
			do      func(*session, int) error
		}{{"prefix", used.consumeFirst}, {"scattered", used.deleteScattered}} {
			cfg.progress("deleting: %s, pinned: %v", step.deleted, pinned)
			if err := step.do(s, cfg.Events/2); err != nil {
				return err
			}
			c := TombstoneCase{Deleted: step.deleted, Pinned: pinned}
			type way struct {
				method string
				into   *NextEvent
			}
			ways := []way{{naive, &c.Naive}, {lastTS, &c.LastTS}, {next, &c.Penstock}}
			if cfg.mysql() != nil {
				c.Outbox = &NextEvent{}
				ways = append(ways, way{message, c.Outbox})
			}
			for _, way := range ways {
				cfg.progress("fetching: %s, pinned: %v, %s", step.deleted, pinned, way.method)
				if *way.into, err = cfg.compare(s, fresh, used, way.method); err != nil {
					return err
				}
			}
			cases = append(cases, c)
		}
		return nil
	})
}

// compare fetches from both in turns, so that whatever else the machine does meets
// both.
func (cfg TombstonesConfig) compare(s *session, fresh, used eventsTable, method string) (e NextEvent, err error) {
	if e.FirstPages, e.FirstMS, err = used.explain(s, method); err != nil {
		return e, err
	}
	var took, freshTook []float64
	until := time.Now().Add(cfg.Longest)
	for len(took) < cfg.Fetches && (len(took) < 5 || time.Now().Before(until)) {
		for _, side := range []struct {
			eventsTable
			took *[]float64
		}{{fresh, &freshTook}, {used, &took}} {
			ms, err := side.fetch(s, method)
			if err != nil {
				return e, err
			}
			*side.took = append(*side.took, ms)
		}
	}
	e.MS, e.FreshMS, e.Fetches = median(took), median(freshTook), len(took)
	e.Ratio = over(e.MS, e.FreshMS)
	if e.Pages, _, err = used.explain(s, method); err != nil {
		return e, err
	}
	e.FreshPages, _, err = fresh.explain(s, method)
	return e, err
}

// withEvents makes a table and a queue with the given number of events for do, and removes them.
func (cfg TombstonesConfig) withEvents(ctx context.Context, s *session, name string, do func(eventsTable) error) (err error) {
	var e eventsTable
	if cfg.mysql() != nil {
		e = newMySQLEvents(cfg.Database, name)
	} else {
		e = newEvents(cfg.Database, name)
	}
	if err := e.create(s); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.remove(ctx)) }()
	cfg.progress("preparing %d events: %s", cfg.Events, name)
	if err := e.fill(s, cfg.Events); err != nil {
		return fmt.Errorf("preparing the events: %w", err)
	}
	return do(e)
}
