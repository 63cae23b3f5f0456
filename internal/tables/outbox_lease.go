package tables

import (
	"context"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// Subscribe has the reader take its subscription's lease by take, or finds where it begins if it is ephemeral. The outbox's row keeps others from
// making subscriptions or changing the retention.
func (r *Reader) Subscribe(ctx context.Context, take func(ctx context.Context, tx Tx) error) error {
	r.Req.SetDefaults()
	if err := r.Req.Validate(); err != nil {
		return err
	}
	r.bySeq = r.DB.Looks().Position
	if r.Req.Ephemeral {
		return r.watch(ctx, r.DB)
	}
	return r.DB.Within(ctx, func(tx Tx) error {
		if err := r.attach(ctx, tx); err != nil {
			return err
		}
		return take(ctx, tx)
	})
}

// Args of a statement about the subscription.
func (r *Reader) Args(more Args) Args {
	a := r.Box.Args(more)
	a["sub"], a["epoch"], a["holder"] = r.ID, r.Epoch, r.Req.Holder
	return a
}

// watch finds where an ephemeral reader begins: now is behind the messages that it would find.
func (r *Reader) watch(ctx context.Context, db OutboxDB) (err error) {
	if err := db.Ready(ctx); err != nil {
		return err
	}
	if r.Box, err = FindOutbox(ctx, db, db, r.Req.Outbox, ""); err != nil || r.Req.Start == driver.FromBeginning {
		return err
	}
	b := &Batch{}
	if r.bySeq {
		b.Row(new(bool), "select coalesce(max(seq), 0) from {table}", r.Args(nil), &r.upTo)
		return db.Run(ctx, b)
	}
	b.Row(new(bool), "select {clock}", nil, &r.Low)
	if err := db.Run(ctx, b); err != nil {
		return err
	}
	r.Low = r.Low.Add(-db.Looks().Margin)
	return db.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var seq int64
		var f Flight
		err := scan(&seq, &f.TS, &f.Bucket)
		r.Passes(seq, f)
		return err
	}, "select seq, ts, {bucket} from {table} where ts > {from}", r.Args(Args{"from": r.Low.UTC()})))
}

// attach finds the subscription, whose lease no reader has, or makes it.
func (r *Reader) attach(ctx context.Context, tx Tx) (err error) {
	if r.Box, err = FindOutbox(ctx, r.DB, tx, r.Req.Outbox, "for update"); err != nil {
		return err
	}
	there, err := r.free(ctx, tx, "and name = {name}")
	if err != nil || there {
		return err
	}
	// Existing messages are settled for the others, or not: either way they note it from here on.
	var others int64
	b, args := &Batch{}, r.Args(Args{"name": r.Req.Subscription})
	b.Counted(&others, "update {schema}.subscriptions set keeps_settled = true where outbox_id = {outbox}", args)
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	if err := r.Box.keepsNothing("it has one subscription, and no other can be made"); err != nil && others > 0 {
		return err
	}
	b = new(Batch).Do("insert into {schema}.subscriptions (outbox_id, name, keeps_settled) values ({outbox}, {name}, {keeps})", args.With(Args{"keeps": others > 0 || r.Box.Retention != admin.Retention{}}))
	b.Row(&there, "select id from {schema}.subscriptions where outbox_id = {outbox} and name = {name}", args, &r.ID)
	if err := tx.Run(ctx, b); err != nil || r.Req.Start != driver.FromNow {
		return err
	}
	return tx.Run(ctx, new(Batch).Do("begin_now", r.Args(nil)))
}

// free reads and locks the subscription's row, if it is there. It is an error if a reader has the lease.
func (r *Reader) free(ctx context.Context, tx Tx, which string) (there bool, err error) {
	held, taken := penstock.HeldError{Subscription: r.Req.Subscription}, false
	b := new(Batch).Row(&there, "select id, holder, lease_until, lease_until > {clock} from {schema}.subscriptions where outbox_id = {outbox} "+which+" for update",
		r.Args(Args{"name": r.Req.Subscription}), &r.ID, &held.Holder, &held.Until, &taken)
	if err := tx.Run(ctx, b); err != nil {
		return there, err
	}
	if taken {
		return there, &held
	}
	return there, nil
}

// Take takes the lease.
func (r *Reader) Take(ctx context.Context, tx Tx) error {
	b, args := &Batch{}, r.Args(Args{"length": r.Req.Lease.Microseconds()})
	b.Do("take_lease", args)
	b.Row(new(bool), "select epoch, low from {schema}.subscriptions where id = {sub}", args, &r.Epoch, &r.Low)
	return tx.Run(ctx, b)
}

// update changes the subscription's row, if this reader still has the lease.
func (r *Reader) update(ctx context.Context, text string, args Args) error {
	if err := r.Usable(ctx); err != nil || r.ID == 0 {
		return err
	}
	var mine int64
	err := r.DB.Send(ctx, func(b *Batch) { b.Counted(&mine, text, r.Args(args)) })
	if err == nil && mine == 0 {
		return r.Fenced(ctx, r.DB)
	}
	return err
}

// Renew implements driver.Source, and notes how far the reading has come: a settled message before that is not
// looked at again.
func (r *Reader) Renew(ctx context.Context) error {
	return r.update(ctx, "renew_lease", Args{"length": r.Req.Lease.Microseconds(), "from": r.SettledTo().UTC()})
}

// ReportSink implements driver.SinkReporter.
func (r *Reader) ReportSink(ctx context.Context, down time.Time, why string) error {
	return r.update(ctx, "update {schema}.subscriptions set sink_epoch = epoch, sink_down = {down}, sink_error = {why} where id = {sub} and epoch = {epoch} and holder = {holder}",
		Args{"down": OrNull(down), "why": why})
}

// Leave gives the lease back.
func (r *Reader) Leave(ctx context.Context) error {
	return r.update(ctx, "update {schema}.subscriptions set holder = '', lease_until = '1970-01-01' where id = {sub} and epoch = {epoch} and holder = {holder}", nil)
}

// Fenced ends the reader and explains why: the subscription's row is not there, or another's.
func (r *Reader) Fenced(ctx context.Context, on Runner) error {
	if r.Box.Adopted != nil {
		return r.Gone(true)
	}
	there := false
	b := new(Batch).Row(&there, "select id from {schema}.outboxes where id = {outbox}", r.Args(nil), new(int64))
	if err := on.Run(ctx, b); err != nil {
		return err
	}
	return r.Gone(there)
}
