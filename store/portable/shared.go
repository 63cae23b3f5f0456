package portable

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/tables"
)

var _ driver.Sharer = (*Store)(nil)

// The row that says whose a subscription is, or a part of it. On a server that was promoted without the last commits an epoch may come
// again. So the holder must also match. And a bucket that was taken may be another's by now.
const (
	aloneLease  = "{schema}.subscriptions s where s.id = $1 and s.epoch = $2 and s.holder = {holder}"
	sharedLease = "{schema}.members s where s.subscription_id = $1 and s.epoch = $2 and s.holder = {holder} and s.buckets @> {owned}"
)

// sql is a statement for the reader that has the lease of these buckets.
func (s *source) sql(name string, buckets []int16) string {
	lease := aloneLease
	if s.shared {
		lease = sharedLease
	}
	text := s.store.words(strings.ReplaceAll(s.store.dialect().statements[distributed(s.Box.DistributedBy != "", name)], "{lease}", lease), s.Box.Words)
	return strings.NewReplacer("{holder}", pg.Literal(s.Req.Holder), "{owned}", literal(buckets)).Replace(text)
}

// literal is an array of these buckets.
func literal(buckets []int16) string {
	text := []byte("'{")
	for i, b := range slices.Compact(slices.Sorted(slices.Values(buckets))) {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(b), 10)
	}
	return string(text) + "}'::smallint[]"
}

// About implements tables.Settling.
func (s *source) About(rows tables.Args) tables.Args {
	lease := aloneLease
	if s.shared {
		lease = sharedLease
	}
	lease = strings.NewReplacer("$1", "{sub}", "$2", "{epoch}").Replace(lease)
	buckets, _ := rows["buckets"].([]int16)
	return s.Args(rows).With(s.whereFrom(rows)).With(tables.Args{"attempt": s.Attempt, "lease": tables.SQL(lease), "owned": tables.SQL(literal(buckets)),
		"allowed": tables.SQL("exists (select from {lease}) and exists (select from {schema}.progress p where p.subscription_id = {sub} and p.epoch = {epoch} and p.attempt = {attempt})")})
}

// Fence implements tables.Settling: of a subscription that is shared it locks the member's row, and the subscription's only against those who change it.
func (s *source) Fence() string {
	if s.shared {
		return "fence_shared"
	}
	return "fence"
}

// SubscribeShared implements driver.Sharer.
func (s *Store) SubscribeShared(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	src := s.newSource(req)
	src.shared = !req.Ephemeral
	if err := src.Subscribe(ctx, func(ctx context.Context, tx tables.Tx) error { return src.join(ctx, tx.(pgTx)) }); err != nil {
		return nil, err
	}
	return src, nil
}

// join makes this reader one of those that share the subscription, whose row is locked.
func (s *source) join(ctx context.Context, tx pgx.Tx) error {
	if err := tx.QueryRow(ctx, s.store.sql("update {schema}.subscriptions set epoch = epoch + 1 where id = $1 returning epoch", ""), s.ID).Scan(&s.Epoch); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.store.sql("insert into {schema}.members (subscription_id, epoch, holder, buckets, lease_until) values ($1, $2, $3, '{}', clock_timestamp() + $4 * interval '1 microsecond')", ""),
		s.ID, s.Epoch, s.Req.Holder, s.Req.Lease.Microseconds()); err != nil {
		return err
	}
	s.owned, s.leaving = nil, nil
	owned, leaving, err := s.balance(ctx, tx)
	s.owned, s.leaving = owned, leaving
	return err
}

// member is one of those that share a subscription.
type member struct {
	epoch   int64
	buckets []int16
	alive   bool
}

// balance shows which buckets are this reader's now, and which of them it must leave to others. It does not read those any
// more, and gives them up once none of their messages is in flight. The subscription's row is locked. A member whose lease
// has ended is removed, which fences it.
func (s *source) balance(ctx context.Context, tx pgx.Tx) (owned, leaving []int16, err error) {
	rows, _ := tx.Query(ctx, s.store.sql("select epoch, buckets, lease_until > clock_timestamp() from {schema}.members where subscription_id = $1 order by epoch for update", ""), s.ID)
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (m member, err error) { return m, r.Scan(&m.epoch, &m.buckets, &m.alive) })
	if err != nil {
		return nil, nil, err
	}
	var alive, dead []int64
	var mine []int16
	taken := map[int16]bool{}
	for _, m := range all {
		if !m.alive {
			dead = append(dead, m.epoch)
			continue
		}
		alive = append(alive, m.epoch)
		if m.epoch == s.Epoch { // it may have buckets more than this reader knows of: the answer to a Renew was lost
			mine = m.buckets
			continue
		}
		for _, b := range m.buckets {
			taken[b] = true
		}
	}
	turn := slices.Index(alive, s.Epoch)
	if turn < 0 {
		return nil, nil, penstock.ErrFenced
	}
	if slices.ContainsFunc(s.owned, func(b int16) bool { return !slices.Contains(mine, b) }) {
		return nil, nil, s.Gone(true) // it was lost in a promotion
	}
	quota := (s.Box.Buckets - turn + len(alive) - 1) / len(alive)
	inFlight := s.bucketsInFlight()
	for _, b := range s.owned {
		switch {
		case len(owned) < quota:
			owned = append(owned, b)
		case inFlight[b]:
			owned, leaving = append(owned, b), append(leaving, b)
		}
	}
	for b := int16(0); int(b) < s.Box.Buckets && len(owned) < quota; b++ {
		if !taken[b] && !slices.Contains(owned, b) {
			owned = append(owned, b)
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(s.store.sql("update {schema}.members set buckets = $3 where subscription_id = $1 and epoch = $2", ""), s.ID, s.Epoch, orEmpty(owned))
	if len(dead) > 0 {
		batch.Queue(s.store.sql("delete from {schema}.members where subscription_id = $1 and epoch = any ($2)", ""), s.ID, dead)
	}
	return owned, leaving, tx.SendBatch(ctx, batch).Close()
}

func (s *source) bucketsInFlight() map[int16]bool {
	in := map[int16]bool{}
	for _, f := range s.InFlight() {
		in[f.Bucket] = true
	}
	return in
}

// reads are the buckets that are read: all, or this reader's buckets that it is not leaving.
func (s *source) reads() []int16 {
	if s.shared {
		return orEmpty(slices.DeleteFunc(slices.Clone(s.owned), func(b int16) bool { return slices.Contains(s.leaving, b) }))
	}
	all := make([]int16, s.Box.Buckets)
	for i := range all {
		all[i] = int16(i)
	}
	return all
}

// renewShared extends the lease, and gives buckets up or takes them, so that each member has its part.
func (s *source) renewShared(ctx context.Context) error {
	if err := s.Usable(ctx); err != nil {
		return err
	}
	s.Fetching.Lock()
	defer s.Fetching.Unlock()
	var owned, leaving []int16
	there, judged := true, false
	err := s.store.tx(ctx, func(tx pgx.Tx) (err error) {
		b := &pgx.Batch{}
		b.Queue(s.store.sql("select from {schema}.subscriptions where id = $1 for update", ""), s.ID)
		b.Queue(s.store.sql("update {schema}.members set lease_until = clock_timestamp() + $3 * interval '1 microsecond' where subscription_id = $1 and epoch = $2 and holder = $4 returning true", ""),
			s.ID, s.Epoch, s.Req.Lease.Microseconds(), s.Req.Holder).QueryRow(func(r pgx.Row) error { return r.Scan(&there) })
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			there = !isNoRows(err)
			return err
		}
		owned, leaving, err = s.balance(ctx, tx)
		judged = err == nil
		return err
	})
	if !there {
		return s.gone(ctx)
	}
	if err != nil && !judged {
		return err
	}
	before := s.reads()
	if err != nil { // that may have happened all the same: then another reader has the buckets that it gives up, and no reader has those that it takes
		owned = slices.DeleteFunc(owned, func(b int16) bool { return !slices.Contains(s.owned, b) })
	}
	s.owned, s.leaving = owned, leaving
	if slices.ContainsFunc(s.reads(), func(b int16) bool { return !slices.Contains(before, b) }) {
		s.Anew() // nothing of them was read for a while, or by another
	}
	return err
}

// leave gives everything back.
func (s *source) leave(ctx context.Context) error {
	return s.store.explain(s.store.retries.Do(ctx, func() error {
		_, err := s.store.pool.Exec(ctx, s.store.sql("delete from {schema}.members where subscription_id = $1 and epoch = $2 and holder = $3", ""), s.ID, s.Epoch, s.Req.Holder)
		return err
	}))
}
