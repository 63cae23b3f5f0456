package portable

import (
	"context"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

var _ driver.Sharer = (*Store)(nil)

// The row that says whose a subscription is, or a part of it. On a server that was promoted without the last commits an epoch may come
// again. So the holder must also match. And a bucket that was taken may be another's by now.
const (
	aloneLease  = "{schema}.subscriptions s where s.id = {sub} and s.epoch = {epoch} and s.holder = {holder}"
	sharedLease = "{schema}.members s where s.subscription_id = {sub} and s.epoch = {epoch} and s.holder = {holder} and s.buckets @> {owned}::smallint[]"
)

// owning are the arguments of a statement for the reader that has the lease of these buckets.
func (s *source) owning(buckets []int16, more tables.Args) tables.Args {
	lease := aloneLease
	if s.shared {
		lease = sharedLease
	}
	return s.Args(tables.Args{"lease": tables.SQL(lease), "owned": buckets}.With(more))
}

// About implements tables.Settling.
func (s *source) About(rows tables.Args) tables.Args {
	buckets, _ := rows["buckets"].([]int16)
	return s.owning(buckets, rows).With(s.whereFrom(rows)).With(tables.Args{"attempt": s.Attempt,
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
	if err := src.Subscribe(ctx, src.join); err != nil {
		return nil, err
	}
	return src, nil
}

// join makes this reader one of those that share the subscription, whose row is locked.
func (s *source) join(ctx context.Context, tx tables.Tx) (err error) {
	b, args := &tables.Batch{}, s.Args(tables.Args{"length": s.Req.Lease.Microseconds()})
	b.Row(new(bool), "update {schema}.subscriptions set epoch = epoch + 1 where id = {sub} returning epoch", args, &s.Epoch)
	b.Do("insert into {schema}.members (subscription_id, epoch, holder, buckets, lease_until) select s.id, s.epoch, {holder}, '{}', clock_timestamp() + {length} * interval '1 microsecond' from {schema}.subscriptions s where s.id = {sub}", args)
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	s.owned, s.leaving = nil, nil
	s.owned, s.leaving, err = s.balance(ctx, tx)
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
func (s *source) balance(ctx context.Context, tx tables.Tx) (owned, leaving []int16, err error) {
	var all []member
	b := new(tables.Batch).Rows(func(scan tables.Scan) error {
		var m member
		err := scan(&m.epoch, &m.buckets, &m.alive)
		all = append(all, m)
		return err
	}, "select epoch, buckets, lease_until > {clock} from {schema}.members where subscription_id = {sub} order by epoch for update", s.Args(nil))
	if err := tx.Run(ctx, b); err != nil {
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
	b = new(tables.Batch).Do("update {schema}.members set buckets = {owned} where subscription_id = {sub} and epoch = {epoch}", s.Args(tables.Args{"owned": owned}))
	if len(dead) > 0 {
		b.Do("delete from {schema}.members where subscription_id = {sub} and {epoch in dead}", s.Args(tables.Args{"dead": dead}))
	}
	return owned, leaving, tx.Run(ctx, b)
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
	err := s.DB.Within(ctx, func(tx tables.Tx) (err error) {
		var mine int64
		args := s.Args(tables.Args{"length": s.Req.Lease.Microseconds()})
		b := new(tables.Batch).Lock("select id from {schema}.subscriptions where id = {sub} for update", args)
		b.Counted(&mine, "update {schema}.members set lease_until = clock_timestamp() + {length} * interval '1 microsecond' where subscription_id = {sub} and epoch = {epoch} and holder = {holder}", args)
		if err := tx.Run(ctx, b); err != nil {
			return err
		}
		if there = mine > 0; !there {
			return nil
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
