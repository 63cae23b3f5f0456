package mysql

import (
	"context"
	"database/sql"
)

// reclaimed is how many messages one transaction of Maintain deletes at most.
const reclaimed = 2000

// Maintain implements penstock.Store: it deletes what every subscription has settled and is not retained, in
// batches, and adds up what Settle has counted.
func (s *Store) Maintain(ctx context.Context, outbox string) error {
	for {
		n := 0
		err := s.tx(ctx, func(t *tx) (err error) {
			n, err = s.maintain(ctx, t, outbox)
			return err
		})
		if err != nil || n < reclaimed {
			return err
		}
	}
}

func (s *Store) maintain(ctx context.Context, t *tx, name string) (n int, err error) {
	box, err := s.findOutbox(ctx, t, name, "")
	if err != nil {
		return 0, err
	}
	b := &batch{}
	subs := s.lockSubscriptions(b, &box)
	if err := t.run(ctx, b); err != nil {
		return 0, err
	}
	for _, sub := range *subs {
		if err := s.fold(ctx, t, sub); err != nil {
			return 0, err
		}
	}
	var seqs []int64
	b = &batch{}
	b.read(func(rows *sql.Rows) error {
		var seq int64
		err := rows.Scan(&seq)
		seqs = append(seqs, seq)
		return err
	}, s.sql("reclaimable", name, words{"outbox": box.ID, "age": box.Retention.Age.Microseconds(), "bytes": box.Retention.Bytes, "most": reclaimed}))
	if err := t.run(ctx, b); err != nil || len(seqs) == 0 {
		return 0, err
	}
	b = &batch{}
	w := words{"subs": list(*subs), "these": these(seqs)}
	b.add(s.sql("delete {table} from {these} straight_join {table} force index (primary) on {table}.seq = d.seq", name, w))
	b.add(s.sql("delete {schema}.entries from {these} join {schema}.subscriptions s on s.id in ({subs}) straight_join {schema}.entries force index (primary) on subscription_id = s.id and entries.seq = d.seq", name, w))
	return len(seqs), t.finish(ctx, b)
}

// fold adds up rows of progress that are too old to be asked for.
func (s *Store) fold(ctx context.Context, t *tx, sub int64) error {
	var sum int64
	gone := ""
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		var attempt, epoch, settled int64
		err := rows.Scan(&attempt, &epoch, &settled)
		if gone != "" {
			gone += ","
		}
		gone += "(" + list([]int64{epoch, attempt}) + ")"
		sum += settled
		return err
	}, s.sql("fold", "", words{"sub": sub}))
	if err := t.run(ctx, b); err != nil || gone == "" {
		return err
	}
	b = &batch{}
	w := words{"sub": sub, "gone": gone, "sum": sum}
	b.add(s.sql("delete from {schema}.progress where subscription_id = {sub} and (epoch, attempt) in ({gone})", "", w))
	b.add(s.sql("update {schema}.subscriptions set settled = settled + {sum} where id = {sub}", "", w))
	return t.run(ctx, b)
}
