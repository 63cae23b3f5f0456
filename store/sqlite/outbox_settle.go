package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// Write implements tables.Reading, in one transaction, which has the file alone.
func (s *source) Write(ctx context.Context, parts []*tables.Part) error {
	err := onTables{s.store}.Within(ctx, func(tx tables.Tx) error { return s.write(context.WithoutCancel(ctx), tx.(onTx), parts) })
	if errors.Is(err, errOlder) {
		return s.restored(ctx)
	}
	return err
}

func (s *source) write(ctx context.Context, tx onTx, parts []*tables.Part) error {
	w := &tables.Writes{Now: tx.at, Settled: len(parts)}
	if !tables.Plain(parts) {
		var err error
		if w, err = s.judge(ctx, tx, parts); err != nil {
			return err
		}
	}
	at := s.Cursor(parts)
	known, _ := s.Known()
	var moved int64
	b := new(tables.Batch).Counted(&moved, "settle", s.Args(tables.Args{"position": at.Position, "ahead": at.Ahead, "attempt": s.Attempt, "known": known, "n": w.Settled}))
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	if moved == 0 {
		return s.settled(ctx, tx)
	}
	if s.also != nil {
		if err := s.also(ctx, tx); err != nil {
			return err
		}
	}
	b = &tables.Batch{}
	change(b, s.Args(nil), w)
	if left := passed(w.Delivered); len(left) > 0 {
		b.Do("end_discarded", s.Args(tables.Args{"seqs": left}))
	}
	return tx.Run(ctx, b)
}

// change writes the new states of entries.
func change(b *tables.Batch, of tables.Args, w *tables.Writes) {
	if len(w.Gone) > 0 {
		b.Do("discard_dead", of.With(tables.Args{"seqs": w.Gone}))
	}
	if len(w.Entries) > 0 {
		b.Do("write_entries", of.With(tables.Args{"entries": entryColumns(w.Entries)}))
	}
	if len(w.Keys) > 0 {
		b.Do("heads", of.With(tables.Args{"keys": slices.Collect(maps.Keys(w.Keys)), "fresh": slices.Concat(slices.Collect(maps.Values(w.Keys))...)}))
	}
	if len(w.Released) > 0 {
		b.Do("release", of.With(tables.Args{"keys": w.Released}))
	}
}

// settled: the row of the subscription is another reader's, or this call has moved it already, or it is that of an older copy of the file.
func (s *source) settled(ctx context.Context, tx onTx) error {
	mine, happened := false, false
	b := new(tables.Batch).Row(new(bool), "select epoch = {epoch} and holder = {holder}, settles >= {attempt} from {schema}.subscriptions where id = {sub}",
		s.Args(tables.Args{"attempt": s.Attempt}), &mine, &happened)
	if err := tx.Run(ctx, b); err != nil || mine && happened {
		return err
	}
	if mine {
		return errOlder
	}
	return s.Fenced(ctx, tx)
}

// errOlder: an older copy of the file has replaced the one that this reader knows.
var errOlder = fmt.Errorf("the file is older than the messages that were read, as after a restore: %w", penstock.ErrFenced)

// restored ends the reader after errOlder, and gives the lease back. The next one begins where the copy is. This one would pass over
// new messages, which get numbers that it has read already.
func (s *source) restored(ctx context.Context) error {
	_ = s.Leave(ctx)
	return s.End(fmt.Errorf("subscription %q of outbox %q: %w", s.Req.Subscription, s.Req.Outbox, errOlder))
}

// judge reads the entries of messages that are not new. write_entries leaves out those that are not there any more.
func (s *source) judge(ctx context.Context, tx onTx, parts []*tables.Part) (*tables.Writes, error) {
	before, there := map[int64]*tables.Entry{}, make(map[int64]bool, len(parts))
	var seqs []int64
	for _, p := range parts {
		there[p.Msg.Seq] = true
		if p.From != tables.FromLog {
			seqs = append(seqs, p.Msg.Seq)
		}
	}
	if len(seqs) > 0 {
		b := new(tables.Batch).Rows(tables.EntriesBefore(before), "read_entries", s.Args(tables.Args{"seqs": seqs}))
		if err := tx.Run(ctx, b); err != nil {
			return nil, err
		}
	}
	return tables.Judge(tx.at, parts, before, there)
}

// entryColumns are entries as write_entries takes them.
func entryColumns(entries []*tables.Entry) [][10]any {
	all := make([][10]any, len(entries))
	for i, e := range entries {
		all[i] = [10]any{e.Seq, e.State, e.ParkedKey != nil, e.Hold != nil, e.Head, bound(e.Due), e.Attempts, bound(e.Since), nil, bound(e.DiedAt)}
		if e.Failures != nil {
			all[i][8] = string(e.Failures)
		}
	}
	return all
}

// passed are delivered messages that the position has passed before.
func passed(delivered []*tables.Part) (seqs []int64) {
	for _, p := range delivered {
		if p.From != tables.FromLog {
			seqs = append(seqs, p.Msg.Seq)
		}
	}
	return seqs
}
