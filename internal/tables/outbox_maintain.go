package tables

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// reclaimed is how many messages one transaction of Maintain deletes at most.
const reclaimed = 2000

// Maintain implements driver.Store: it deletes messages that every subscription has settled and that are not retained, in batches, and adds up the counts of
// Settle. It looks first. Only if it finds something does it make readers wait that settle or renew. A look may read all messages that
// one subscription has settled and another one, which is stopped, has not.
func (s *Outboxes) Maintain(ctx context.Context, outbox string) error {
	for {
		var l upkeep
		if err := s.on.Within(ctx, func(tx Tx) (err error) {
			l, err = s.look(ctx, tx, outbox)
			return err
		}); err != nil {
			return err
		}
		if l.folds || l.messages > 0 {
			if err := s.on.Within(ctx, func(tx Tx) error { return s.maintain(ctx, tx, outbox, &l) }); err != nil {
				return err
			}
		}
		if l.messages < reclaimed {
			return nil
		}
	}
}

// upkeep is the work for Maintain.
type upkeep struct {
	messages int
	before   time.Time // the first of them, by a moment
	since    *Since
	folds    bool
}

// look takes no lock.
func (s *Outboxes) look(ctx context.Context, tx Tx, name string) (l upkeep, err error) {
	box, err := s.find(ctx, tx, name, "")
	if err != nil {
		return l, err
	}
	passed, _ := s.reclaimed.LoadOrStore(box.ID, &Passed{})
	l.since = passed.(*Passed).Since(s.on.Looks().Sweep)
	var subs []int64
	m := messages{}
	b := new(Batch).Rows(All(&subs), "select id from {schema}.subscriptions where outbox_id = {outbox}", box.Args(nil))
	if box.DistributedBy == "" {
		s.reclaimable(b, &box, &m, l.since.Time, reclaimed)
	}
	if err := tx.Run(ctx, b); err != nil {
		return l, err
	}
	b = &Batch{}
	for _, sub := range subs {
		s.progress(b, sub, func(_, _, _ int64) { l.folds = true })
	}
	if l.messages = len(m.seqs); l.messages == 0 {
		return l, s.passed(ctx, tx, b, &box, l.since)
	}
	l.before = m.times[0].Add(-time.Microsecond)
	return l, tx.Finish(ctx, b)
}

// reclaimable asks for messages that every subscription has settled and that are not retained.
func (s *Outboxes) reclaimable(b *Batch, box *Outbox, m *messages, since time.Time, most int) {
	b.Rows(m.read, "reclaimable", box.Args(Args{"age": box.Retention.Age.Microseconds(), "bytes": box.Retention.Bytes, "most": most, "since": since.UTC()}))
}

// passed ends a transaction with noting before what nothing is left.
func (s *Outboxes) passed(ctx context.Context, tx Tx, b *Batch, box *Outbox, since *Since) error {
	var kept *time.Time
	var now time.Time
	b.Row(new(bool), "kept", box.Args(Args{"since": since.UTC()}), &kept, &now)
	if err := tx.Finish(ctx, b); err != nil {
		return err
	}
	before := now.Add(-s.on.Looks().Margin)
	if kept != nil && kept.Before(before) {
		before = kept.Add(-time.Microsecond)
	}
	since.Found(false, before)
	return nil
}

// maintain does the work that was seen, as far as it is still there.
func (s *Outboxes) maintain(ctx context.Context, tx Tx, name string, l *upkeep) error {
	box, err := s.find(ctx, tx, name, "")
	if err != nil {
		return err
	}
	b := &Batch{}
	subs := lockSubscriptions(b, &box)
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	for _, sub := range *subs {
		if err := s.fold(ctx, tx, sub); err != nil {
			return err
		}
	}
	if l.messages == 0 {
		return tx.Finish(ctx, &Batch{})
	}
	m := messages{}
	b = &Batch{}
	s.reclaimable(b, &box, &m, l.before, l.messages)
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	b = &Batch{}
	if len(m.seqs) > 0 {
		for _, statement := range []string{"reclaim", "reclaim_entries"} {
			b.Do(statement, box.Args(m.args()).With(Args{"subs": *subs}))
		}
	}
	return s.passed(ctx, tx, b, &box, l.since)
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

// progress asks for rows of progress that are too old to be asked for.
func (s *Outboxes) progress(b *Batch, sub int64, each func(attempt, epoch, settled int64)) {
	var last folded
	if f, ok := s.folded.Load(sub); ok {
		last = f.(folded)
	}
	b.Rows(func(scan Scan) error {
		var attempt, epoch, settled int64
		err := scan(&attempt, &epoch, &settled)
		each(attempt, epoch, settled)
		return err
	}, "fold", Args{"sub": sub, "epoch": last.epoch, "attempt": last.attempt})
}

// fold adds up rows of progress that are too old to be asked for.
func (s *Outboxes) fold(ctx context.Context, tx Tx, sub int64) error {
	var attempts, epochs []int64
	var pairs []string
	var sum int64
	var last folded
	b := &Batch{}
	s.progress(b, sub, func(attempt, epoch, settled int64) {
		last = folded{epoch, attempt}
		attempts, epochs, sum = append(attempts, attempt), append(epochs, epoch), sum+settled
		pairs = append(pairs, fmt.Sprintf("(%d,%d)", epoch, attempt))
	})
	if err := tx.Run(ctx, b); err != nil || len(attempts) == 0 {
		return err
	}
	b = new(Batch).Do("end_progress", Args{"sub": sub, "epochs": epochs, "attempts": attempts, "pairs": SQL(strings.Join(pairs, ","))})
	b.Do("update {schema}.subscriptions set settled = settled + {sum} where id = {sub}", Args{"sub": sub, "sum": sum})
	err := tx.Run(ctx, b)
	if err == nil {
		s.folded.Store(sub, last)
	}
	return err
}
