package tables

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// reclaimed is how many messages one transaction of Maintain deletes at most.
const reclaimed = 2000

// Maintain implements penstock.Store: it deletes what every subscription has settled and is not retained, in
// batches, and adds up what Settle has counted.
func (s *Outboxes) Maintain(ctx context.Context, outbox string) error {
	for {
		n := 0
		err := s.on.Within(ctx, func(tx Tx) (err error) {
			n, err = s.maintain(ctx, tx, outbox)
			return err
		})
		if err != nil || n < reclaimed {
			return err
		}
	}
}

func (s *Outboxes) maintain(ctx context.Context, tx Tx, name string) (n int, err error) {
	box, err := s.find(ctx, tx, name, "")
	if err != nil {
		return 0, err
	}
	b := &Batch{}
	subs := lockSubscriptions(b, &box)
	if err := tx.Run(ctx, b); err != nil {
		return 0, err
	}
	for _, sub := range *subs {
		if err := s.fold(ctx, tx, sub); err != nil {
			return 0, err
		}
	}
	passed, _ := s.reclaimed.LoadOrStore(box.ID, &Passed{})
	since := passed.(*Passed).Since(s.on.Looks().Sweep)
	m := messages{}
	b = &Batch{}
	b.Rows(m.read, "reclaimable", box.Args(Args{"age": box.Retention.Age.Microseconds(), "bytes": box.Retention.Bytes, "most": reclaimed, "since": since.UTC()}))
	if err := tx.Run(ctx, b); err != nil {
		return 0, err
	}
	b = &Batch{}
	if len(m.seqs) > 0 {
		for _, statement := range []string{"reclaim", "reclaim_entries"} {
			b.Do(statement, box.Args(m.args()).With(Args{"subs": *subs}))
		}
	}
	var kept *time.Time
	var now time.Time
	b.Row(new(bool), "kept", box.Args(Args{"since": since.UTC()}), &kept, &now)
	if err := tx.Finish(ctx, b); err != nil {
		return 0, err
	}
	before := now.Add(-s.on.Looks().Margin)
	if kept != nil && kept.Before(before) {
		before = kept.Add(-time.Microsecond)
	}
	since.Found(false, before)
	return len(m.seqs), nil
}

// messages are places of messages.
type messages struct {
	buckets []int16
	times   []time.Time
	seqs    []int64
	rowIDs  []string // of an adopted table
}

func (m *messages) read(scan Scan) error {
	var f Flight
	var seq int64
	err := scan(&f.Bucket, &f.TS, &seq)
	m.add(f, seq)
	return err
}

func (m *messages) add(f Flight, seq int64) {
	m.buckets, m.times, m.seqs = append(m.buckets, f.Bucket), append(m.times, f.TS), append(m.seqs, seq)
	m.rowIDs = append(m.rowIDs, f.RowID)
}

func (m *messages) args() Args {
	return Args{"buckets": m.buckets, "times": m.times, "seqs": m.seqs, "row_ids": m.rowIDs}
}

// folded is up to which attempt rows of progress were added up by this process. One that is noted before that by a relay that has lost its lease
// stays, and counts all the same.
type folded struct{ epoch, attempt int64 }

// fold adds up rows of progress that are too old to be asked for.
func (s *Outboxes) fold(ctx context.Context, tx Tx, sub int64) error {
	var attempts, epochs []int64
	var pairs []string
	var sum int64
	var last folded
	if f, ok := s.folded.Load(sub); ok {
		last = f.(folded)
	}
	b := &Batch{}
	b.Rows(func(scan Scan) error {
		var attempt, epoch, settled int64
		err := scan(&attempt, &epoch, &settled)
		last = folded{epoch, attempt}
		attempts, epochs, sum = append(attempts, attempt), append(epochs, epoch), sum+settled
		pairs = append(pairs, fmt.Sprintf("(%d,%d)", epoch, attempt))
		return err
	}, "fold", Args{"sub": sub, "epoch": last.epoch, "attempt": last.attempt})
	if err := tx.Run(ctx, b); err != nil || len(attempts) == 0 {
		return err
	}
	b = &Batch{}
	b.Do("end_progress", Args{"sub": sub, "epochs": epochs, "attempts": attempts, "pairs": SQL(strings.Join(pairs, ","))})
	b.Do("update {schema}.subscriptions set settled = settled + {sum} where id = {sub}", Args{"sub": sub, "sum": sum})
	err := tx.Run(ctx, b)
	if err == nil {
		s.folded.Store(sub, last)
	}
	return err
}
