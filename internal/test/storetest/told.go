package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Settle settles as a relay does, whatever batches and verdicts a test has at hand. It gives the Source the news, shows how far the
// cursor may pass, and repeats a call that was not answered before it makes another.
func Settle(ctx context.Context, src driver.Source, settled ...driver.Settled) error {
	known, _ := toldOf.LoadOrStore(src, &told{source: src, batches: map[uint64]*toldBatch{}})
	t := known.(*told)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unanswered != nil {
		if err := t.call(ctx); err != nil {
			return err
		}
	}
	t.unanswered = t.news(settled)
	if len(t.unanswered) > 0 {
		t.attempt++
	}
	return t.call(ctx)
}

var toldOf sync.Map // *news by Source

// told has the reports to a Source.
type told struct {
	source     driver.Source
	mu         sync.Mutex
	attempt    uint64
	batches    map[uint64]*toldBatch
	passed     uint64 // the cursor may pass all batches up to this one
	unanswered []driver.Settled
}

type toldBatch struct {
	driver.Batch
	known []bool // of each message: its verdict was reported
}

func (t *told) call(ctx context.Context) error {
	err := t.source.Settle(ctx, t.attempt, t.unanswered...)
	if err == nil {
		for _, s := range t.unanswered {
			t.take(s)
		}
	}
	if err == nil || errors.Is(err, penstock.ErrFenced) { // nothing was changed
		t.unanswered = nil
	}
	return err
}

// take notes that news was reported.
func (t *told) take(s driver.Settled) {
	known := t.batches[s.Batch.Number].known
	for i := range known {
		known[i] = known[i] || s.Verdicts == nil || s.Verdicts[i].Outcome != driver.Undecided
	}
	if !s.Open {
		t.passed = max(t.passed, s.Batch.Number)
	}
}

// news is the new part of this, and which batches the cursor passes with it.
func (t *told) news(settled []driver.Settled) (news []driver.Settled) {
	over := map[uint64]bool{} // batches that have all their verdicts, with these
	for number, b := range t.batches {
		over[number] = !slices.Contains(b.known, false)
	}
	for _, s := range settled {
		number := s.Batch.Number
		if s.Batch.Rewound { // earlier batches are forgotten
			t.passed = max(t.passed, number-1)
		}
		b := t.batches[number]
		if b == nil {
			b = &toldBatch{s.Batch, make([]bool, len(s.Batch.Messages))}
			t.batches[number] = b
		}
		some := false
		if fresh := !slices.Contains(b.known, true); !fresh || slices.ContainsFunc(s.Verdicts, func(v driver.Verdict) bool { return v.Outcome == driver.Undecided }) {
			s.Verdicts = slices.Concat(s.Verdicts, make([]driver.Verdict, len(b.known)))[:len(b.known)]
			over[number] = true
			for i := range s.Verdicts {
				if b.known[i] {
					s.Verdicts[i] = driver.Verdict{Outcome: driver.Undecided}
				} else if s.Verdicts[i].Outcome == driver.Undecided {
					over[number] = false
				} else {
					some = true
				}
			}
		} else {
			some, over[number] = true, true
		}
		if s.Open = true; some {
			news = append(news, s)
		}
	}
	for number := t.passed + 1; over[number]; number++ {
		i := slices.IndexFunc(news, func(s driver.Settled) bool { return s.Batch.Number == number })
		if i < 0 {
			i = len(news)
			b := t.batches[number]
			news = append(news, driver.Settled{Batch: b.Batch, Verdicts: slices.Repeat([]driver.Verdict{{Outcome: driver.Undecided}}, len(b.known))})
		}
		news[i].Open = false
	}
	slices.SortStableFunc(news, func(a, b driver.Settled) int { return int(a.Batch.Number) - int(b.Batch.Number) })
	return news
}

// forget is called when the Source went back: batches up to this one are not settled any more.
func forget(src driver.Source, number uint64) {
	if known, some := toldOf.Load(src); some {
		t := known.(*told)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.passed, t.unanswered = max(t.passed, number), nil
	}
}

// Settle of a reader is that of a relay.
func (r *reader) Settle(ctx context.Context, settled ...driver.Settled) error {
	return Settle(ctx, r.Source, settled...)
}
