package portable

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// inboxRow is what a call knows of its inbox, once its first round trip has come back.
type inboxRow struct {
	id    int64
	keep  time.Duration
	stale bool            // what is read behind a lock may be from before it
	fresh map[string]bool // ids that are new
}

// batch begins a round trip with asking for the inbox.
func (i *Inbox) batch() (*pgx.Batch, *inboxRow) {
	b, box := &pgx.Batch{}, &inboxRow{fresh: map[string]bool{}}
	b.Queue(i.store.sql("inbox_find", ""), i.consumer).QueryRow(func(r pgx.Row) error {
		var keep int64
		err := r.Scan(&box.id, &keep, &box.stale)
		box.keep = time.Duration(keep) * time.Microsecond
		return err
	})
	return b, box
}

// queueSee notes ids, and forgets some that are old.
func (i *Inbox) queueSee(b *pgx.Batch, box *inboxRow, ids []string) {
	i.mu.Lock()
	if time.Since(i.since) > forgetAnew {
		i.forgotten, i.since = time.Unix(0, 0), time.Now()
	}
	from := i.forgotten
	i.mu.Unlock()
	b.Queue(i.store.sql("inbox_forget", ""), i.consumer, from.UTC(), forgetAtOnce*len(ids)).Query(func(rows pgx.Rows) error {
		var at time.Time
		last := from
		_, err := pgx.ForEachRow(rows, []any{&at}, func() error {
			if at.After(last) {
				last = at
			}
			return nil
		})
		i.mu.Lock()
		defer i.mu.Unlock()
		if last.After(i.forgotten) {
			i.forgotten = last
		}
		return err
	})
	b.Queue(i.store.sql("inbox_see", ""), i.consumer, ids).Query(func(rows pgx.Rows) error {
		var id string
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { box.fresh[id] = true; return nil })
		return err
	})
}

func (i *Inbox) queueTurn(b *pgx.Batch, key string) {
	b.Queue(i.store.sql("inbox_turn", ""), i.consumer, turnOf(key)).QueryRow(orNone(new(int16)))
}

// keyState is what an inbox knows around a message.
type keyState struct {
	late                    bool // it was reported missing
	received, held, missing bool // its predecessor
	head                    string
	follow                  []penstock.Released // what is held for it, and for that
	previouses              []string
}

func (i *Inbox) queueState(b *pgx.Batch, st *keyState, r *penstock.Released, previous string) {
	b.Queue(i.store.sql("inbox_state", ""), i.consumer, r.ID, previous, r.Key).QueryRow(func(row pgx.Row) error {
		return row.Scan(&st.late, &st.received, &st.held, &st.missing, &st.head)
	})
	b.Queue(i.store.sql("inbox_follow", ""), i.consumer, r.ID).Query(func(rows pgx.Rows) error {
		var next penstock.Released
		var previous string
		var headers []byte
		_, err := pgx.ForEachRow(rows, []any{&next.ID, &next.Key, &headers, &next.Payload, &previous}, func() error {
			one := next
			one.Headers = nil
			if len(headers) > 0 {
				if err := json.Unmarshal(headers, &one.Headers); err != nil {
					return err
				}
			}
			next.Payload = nil
			st.follow, st.previouses = append(st.follow, one), append(st.previouses, previous)
			return nil
		})
		return err
	})
}

// release takes out what was held for r, and what was held for that, and returns all of it in order, r first. What follows a
// message that is not its key's head is late, and leaves the head where it is.
func (i *Inbox) release(ctx context.Context, tx InboxTx, box *inboxRow, r penstock.Released, previous string, st *keyState, also func(b *pgx.Batch)) ([]penstock.Released, error) {
	b := &pgx.Batch{}
	if also != nil {
		also(b)
	}
	var released []penstock.Released
	ids, head := []string{}, st.head
	for n, m := range append([]penstock.Released{r}, st.follow...) {
		before := previous
		if n > 0 {
			before, ids = st.previouses[n-1], append(ids, m.ID)
		}
		m.Late = m.Late || before != "" && !m.Gap && head != "" && head != before
		if !m.Late {
			head = m.ID
		}
		released = append(released, m)
	}
	if len(ids) > 0 {
		b.Queue(i.store.sql("delete from {schema}.held where inbox_id = $1 and id = any ($2)", ""), box.id, ids)
	}
	if head != st.head {
		b.Queue(i.store.sql("inbox_forget_heads", ""), box.id)
		b.Queue(i.store.sql("inbox_head", ""), box.id, r.Key, head)
	}
	if b.Len() == 0 {
		return released, nil
	}
	return released, i.explain(tx.SendBatch(ctx, b).Close())
}

// queueGap notes a gap, before next or, as nothing has followed yet, "", and forgets some that are old.
func (s *Store) queueGap(b *pgx.Batch, inbox int64, missing, key, next string, discarded bool) {
	b.Queue(s.sql("inbox_forget_gaps", ""), inbox)
	b.Queue(s.sql("inbox_gap", ""), inbox, missing, key, orNull(next), discarded)
}

// headersText is headers as JSON, nil without any.
func headersText(headers map[string]string) (*string, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(headers)
	return orNull(string(text)), err
}

// notNil: nil would be NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
