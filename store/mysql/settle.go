package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/tables"
)

func (s *source) Write(ctx context.Context, parts []*tables.Part) error {
	if tables.Plain(parts) {
		return s.settlePlain(ctx, parts)
	}
	return s.store.once(ctx, func(t *tx) error { return s.settleAll(ctx, t, parts) })
}

// settlePlain settles messages that are new and were delivered, in one round trip.
func (s *source) settlePlain(ctx context.Context, parts []*tables.Part) error {
	b := &batch{}
	var there, mine bool
	b.one(&there, s.sql("fence", nil), &mine)
	of, args := s.placed(parts)
	b.add(s.sql("progress_of", words{"placed": of}), args...)
	s.queueDone(b, parts)
	err := s.store.send(ctx, b)
	if err == nil && !mine {
		return s.Fenced(ctx, s.DB)
	}
	return err
}

// queueDone notes or deletes delivered messages. How many were settled is in progress by then.
func (s *source) queueDone(b *batch, delivered []*tables.Part) {
	if len(delivered) == 0 {
		return
	}
	if s.Box.Adopted != nil {
		text, args := s.store.rendered(s.Box.Adopted.Settles, s.Box.Args(keysOf(delivered)).With(tables.Args{"allowed": tables.SQL(s.sql("may_settle", nil))}))
		b.add(text, args...)
		return
	}
	of, _ := s.placed(delivered)
	w := words{"placed": of}
	b.add(s.sql("keep_settled", w))
	b.add(s.sql("delete", w))
}

// placed is a table d of messages: numbers, and times, because after a loss of messages with a server another one may have the number.
func (s *source) placed(parts []*tables.Part) (text string, args []any) {
	if s.Box.Adopted != nil {
		return rowsOf(keysOf(parts))
	}
	b := []byte("json_table('[")
	for i, p := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `[%d,"%s"]`, p.Msg.Seq, p.TS.UTC().Format("2006-01-02 15:04:05.000000"))
	}
	return string(b) + "]', '$[*]' columns (seq bigint path '$[0]', ts datetime(6) path '$[1]')) d", nil
}

// keysOf are where an adopted table's rows are.
func keysOf(parts []*tables.Part) tables.Args {
	var times []time.Time
	var seqs []int64
	var ids []string
	for _, p := range parts {
		times, seqs, ids = append(times, p.TS), append(seqs, p.Msg.Seq), append(ids, p.RowID)
	}
	return tables.Args{"times": times, "seqs": seqs, "row_ids": ids}
}

// settleAll settles messages with verdicts: it reads their entries and writes the rest. The lock waits for the same
// call, if that is under way still.
func (s *source) settleAll(ctx context.Context, t *tx, parts []*tables.Part) error {
	var isThere, mine, happened bool
	var now time.Time
	before, there := map[int64]*tables.Entry{}, map[int64]bool{}
	seqs := make([]int64, len(parts))
	for i, p := range parts {
		seqs[i] = p.Msg.Seq
	}
	of, args := s.placed(parts)
	b := &batch{}
	b.one(&isThere, s.sql("fence", nil), &mine)
	b.read(func(rows *sql.Rows) error { return rows.Scan(&happened) },
		s.sql("select exists (select 1 from {schema}.progress where subscription_id = {sub} and epoch = {epoch} and attempt = {attempt})", nil))
	b.read(func(rows *sql.Rows) error { return rows.Scan(&now) }, "select utc_timestamp(6)")
	b.read(func(rows *sql.Rows) error {
		e := &tables.Entry{}
		err := e.Before(rows.Scan)
		before[e.Seq] = e
		return err
	}, s.sql("read_entries", words{"seqs": list(seqs)}))
	b.read(func(rows *sql.Rows) error {
		var seq int64
		err := rows.Scan(&seq)
		there[seq] = true
		return err
	}, s.sql("existing", words{"placed": of}), args...)
	err := t.run(ctx, b)
	if err == nil && !mine {
		return s.Fenced(ctx, onTx{t, s.store})
	}
	if err != nil || happened {
		return err
	}
	w, err := tables.Judge(now, parts, before, there)
	if err != nil {
		return err
	}
	return s.write(ctx, t, w)
}

// write sends the writes with the commit, usually in one round trip.
func (s *source) write(ctx context.Context, t *tx, w *tables.Writes) error {
	b := &batch{}
	add := func(statement string, args ...any) error {
		b.add(statement, args...)
		return t.empty(ctx, b)
	}
	if len(w.Gone) > 0 {
		if err := add(s.sql("delete {schema}.entries from {these} straight_join {schema}.entries force index (primary) on subscription_id = {sub} and entries.seq = d.seq", words{"these": these(w.Gone)})); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(w.Entries, 100) {
		var args []any
		for _, e := range some {
			args = append(args, s.ID, e.Seq, e.TS, orNull(e.RowID), e.State, []byte(e.Key), bytesOf(e.ParkedKey), bytesOf(e.Hold), e.Head, utcOf(e.Due), e.Attempts, utcOf(e.Since), []byte(e.Failures), []byte(e.Err), utcOf(e.DiedAt))
		}
		const one = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
		if err := add(s.sql("insert into {schema}.entries (subscription_id, seq, ts, row_id, state, `key`, parked_key, hold, head, due, attempts, since, failures, error, died_at) values ", nil)+
			strings.Repeat(one+", ", len(some)-1)+one, args...); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.Keys)) {
		if err := add(s.sql("heads", words{"fresh": list(w.Keys[key])}), []byte(key), []byte(key)); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(w.Released, 100) {
		text, args := s.store.rendered("release", tables.Args{"sub": s.ID, "keys": some})
		if err := add(text, args...); err != nil {
			return err
		}
	}
	b.add(s.sql("progress", words{"settled": w.Settled}))
	s.queueDone(b, w.Delivered)
	if failed := w.Failed(&s.Box); failed != nil {
		text, args := s.store.rendered("adopt_failed", s.Box.Args(failed))
		b.add(text, args...)
	}
	return t.finish(ctx, b)
}

// bytesOf is a text, or NULL.
func bytesOf(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

// utcOf is a time, or NULL.
func utcOf(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UTC()
}
