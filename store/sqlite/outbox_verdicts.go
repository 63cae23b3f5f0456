package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// settlePart writes what is more than the cursor: who is parked or dead. Batches are
// carried out one after another, so a parked key that one of them empties and another one
// fills is as if two calls had settled them.
func (s *source) settlePart(ctx context.Context, tx *sql.Tx, p *part, at time.Time) error {
	t := settlement{source: s, tx: tx, b: p, at: at.UnixMicro()}
	if p.from == fromPark {
		return t.parked(ctx, p.failed)
	}
	return t.fresh(ctx, p.failed)
}

// settlement is one batch on its way into the database. Messages travel there as
// numbers: the database copies them from where they are.
type settlement struct {
	*source
	tx *sql.Tx
	b  *part
	at int64
}

// entry is a row of a statement's parameter.
type entry []any

// fresh carries out verdicts on messages that are in the outbox.
func (t *settlement) fresh(ctx context.Context, failed []failedVerdict) error {
	var park, dead []entry
	var hold []int64
	var before map[int64]history
	if t.b.from == fromReplay && len(failed) > 0 {
		// The same message may have died before.
		var err error
		if before, err = t.histories(ctx, `select seq, history from penstock_dead_letters where subscription_id = ? and seq in (select value from json_each(?))`,
			t.subID, t.seqsOf(failed)); err != nil {
			return err
		}
	}
	for _, r := range failed {
		seq := t.b.seq(r.index)
		if r.Outcome == driver.Parked {
			park = append(park, entry{seq, micros(r.RetryIn), column(history{}.And(r.Failures))})
			continue
		}
		h := givenUp(history{}, r.Failures)
		h.Failures = before[seq].And(h.Failures).Failures
		dead = append(dead, entry{seq, column(h)})
		if r.Hold {
			hold = append(hold, seq)
		}
	}
	table := Table(t.box.name)
	if len(park) > 0 {
		if _, err := t.tx.ExecContext(ctx, on(table, statement("park_keys")), t.subID, t.at, array(park)); err != nil {
			return err
		}
		if err := t.copied(t.tx.ExecContext(ctx, on(table, statement("park")), t.subID, array(park)))(len(park)); err != nil {
			return err
		}
	}
	if len(dead) > 0 {
		if err := t.copied(t.tx.ExecContext(ctx, on(table, statement("dead_letter")), t.subID, t.at, array(dead)))(len(dead)); err != nil {
			return err
		}
	}
	return t.hold(ctx, hold)
}

// parked carries out verdicts on parked messages.
func (t *settlement) parked(ctx context.Context, failed []failedVerdict) error {
	verdicts := make(map[int]failedVerdict, len(failed))
	numbers := []int64{}
	for _, r := range failed {
		verdicts[r.index] = r
		numbers = append(numbers, t.b.parked[r.index].number)
	}
	before, err := t.histories(ctx, `select number, coalesce(history, '') from penstock_parked where number in (select value from json_each(?))`, array(numbers))
	if err != nil {
		return err
	}
	var refused, dead, delay []entry
	var hold, delivered, gone, keys []int64
	delayed := map[int64]bool{}
	for _, i := range t.b.indexes() {
		p, seq := t.b.parked[i], t.b.seq(i)
		if n := len(keys); n == 0 || keys[n-1] != p.key {
			keys = append(keys, p.key)
		}
		r, ok := verdicts[i]
		switch {
		case !ok:
			gone = append(gone, p.number)
			if p.outOfOrder {
				delivered = append(delivered, seq)
			}
		case r.Outcome == driver.Dead:
			gone = append(gone, p.number)
			dead = append(dead, entry{p.number, column(givenUp(before[p.number], r.Failures))})
			if r.Hold && !p.outOfOrder {
				hold = append(hold, seq)
			}
		default:
			if len(r.Failures) > 0 {
				refused = append(refused, entry{p.number, column(before[p.number].And(r.Failures))})
			}
			if !delayed[p.key] {
				delayed[p.key] = true
				delay = append(delay, entry{p.key, seq, t.at + micros(r.RetryIn)})
			}
		}
	}
	if err := t.exec(ctx, statement("refuse_parked"), len(refused), array(refused)); err != nil {
		return err
	}
	if err := t.exec(ctx, statement("dead_letter_parked"), len(dead), t.subID, t.at, array(dead)); err != nil {
		return err
	}
	if err := t.exec(ctx, `delete from penstock_parked where number in (select value from json_each(?))`, len(gone), array(gone)); err != nil {
		return err
	}
	if err := t.hold(ctx, hold); err != nil {
		return err
	}
	all := array(keys)
	if err := t.exec(ctx, statement("advance_keys"), len(keys), t.at, all); err != nil {
		return err
	}
	if err := t.exec(ctx, statement("delay_keys"), len(delay), array(delay)); err != nil {
		return err
	}
	if err := t.exec(ctx, statement("end_keys"), len(keys), all); err != nil {
		return err
	}
	return release(ctx, t.tx, t.subID, delivered, t.at)
}

// hold keeps the keys of dead letters waiting.
func (t *settlement) hold(ctx context.Context, seqs []int64) error {
	if err := t.exec(ctx, statement("hold"), len(seqs), t.subID, array(seqs)); err != nil {
		return err
	}
	return t.exec(ctx, statement("hold_keys"), len(seqs), t.subID, array(seqs))
}

// exec runs a statement on n things, if there are any.
func (t *settlement) exec(ctx context.Context, query string, n int, args ...any) error {
	if n == 0 {
		return nil
	}
	_, err := t.tx.ExecContext(ctx, query, args...)
	return err
}

// copied checks that a statement found all the messages that it was to copy.
func (t *settlement) copied(done sql.Result, err error) func(want int) error {
	return func(want int) error {
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == int64(want) {
			return err
		}
		return penstock.WithHint(fmt.Errorf("of %d messages that cannot be delivered now some are no longer in %s", want, Table(t.box.name)),
			"leave deleting from this table to penstock; they are sent again after a restart if they are put back")
	}
}

// histories reads what messages have been through, by the query's first column.
func (t *settlement) histories(ctx context.Context, query string, args ...any) (map[int64]history, error) {
	rows, err := t.tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := map[int64]history{}
	for rows.Next() {
		var id int64
		var text string
		if err := rows.Scan(&id, &text); err != nil {
			return nil, err
		}
		all[id] = readHistory(text)
	}
	return all, rows.Err()
}

func (t *settlement) seqsOf(failed []failedVerdict) string {
	seqs := make([]int64, len(failed))
	for i, r := range failed {
		seqs[i] = t.b.seq(r.index)
	}
	return array(seqs)
}

// column is the value of the history column: nil, so NULL, without one.
func column(h history) any {
	if h.Attempt == 0 {
		return nil
	}
	b, _ := json.Marshal(h) // cannot fail, but for a year of five digits
	return json.RawMessage(b)
}

// micros is a duration in microseconds, rounded up: not before.
func micros(d time.Duration) int64 {
	return int64((max(d, 0) + time.Microsecond - 1) / time.Microsecond)
}
