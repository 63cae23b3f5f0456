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
		if err := fold(ctx, tx, sub); err != nil {
			return 0, err
		}
	}
	m := messages{}
	b = &Batch{}
	b.Rows(m.read, "reclaimable", box.Args(Args{"age": box.Retention.Age.Microseconds(), "bytes": box.Retention.Bytes, "most": reclaimed}))
	if err := tx.Run(ctx, b); err != nil || len(m.seqs) == 0 {
		return 0, err
	}
	b = &Batch{}
	for _, statement := range []string{"reclaim", "reclaim_entries"} {
		b.Do(statement, box.Args(m.args()).With(Args{"subs": *subs}))
	}
	return len(m.seqs), tx.Finish(ctx, b)
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

// fold adds up rows of progress that are too old to be asked for.
func fold(ctx context.Context, tx Tx, sub int64) error {
	var attempts, epochs []int64
	var pairs []string
	var sum int64
	b := &Batch{}
	b.Rows(func(scan Scan) error {
		var attempt, epoch, settled int64
		err := scan(&attempt, &epoch, &settled)
		attempts, epochs, sum = append(attempts, attempt), append(epochs, epoch), sum+settled
		pairs = append(pairs, fmt.Sprintf("(%d,%d)", epoch, attempt))
		return err
	}, "fold", Args{"sub": sub})
	if err := tx.Run(ctx, b); err != nil || len(attempts) == 0 {
		return err
	}
	b = &Batch{}
	b.Do("end_progress", Args{"sub": sub, "epochs": epochs, "attempts": attempts, "pairs": SQL(strings.Join(pairs, ","))})
	b.Do("update {schema}.subscriptions set settled = settled + {sum} where id = {sub}", Args{"sub": sub, "sum": sum})
	return tx.Run(ctx, b)
}
