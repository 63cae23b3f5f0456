package tables

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/inorder"
	"github.com/penstock/penstock/internal/shell"
)

// InboxDB has the further methods that inboxes need of their store.
type InboxDB interface {
	DB
	// Turns means that messages of a key take turns, because several transactions write at a time.
	Turns() bool
	// Turn waits for the turn of a key's messages, and says if rows that are read behind that may be from before it.
	Turn(b *Batch, box *InboxRow, turn int)
	// See notes ids, and returns which are new. Who else notes one of them now is waited for.
	See(b *Batch, box *InboxRow, ids []string, isNew func(id string))
	// Forget deletes a few rows of received, gaps or key_heads that are out of the inbox's window, {most} of them that are not older
	// than {from}, and returns their times. Who else forgets some of them is not waited for.
	Forget(b *Batch, box *InboxRow, table string, args Args, forgot func(at time.Time))
	// Stale is the error if the rows that were read may be from before a lock.
	Stale() error
	// Explain translates an error for an inbox's caller.
	Explain(consumer string, err error) error
}

// Inbox is one consumer's inbox, in transactions of the caller's. Its writes take effect once if
// the caller continues only with new messages. Safe for concurrent use.
type Inbox struct {
	on       InboxDB
	consumer string

	mu        sync.Mutex
	forgotten time.Time // older ids were forgotten, and are not walked over again
	since     time.Time // when that began to be known: it is a guess, because transactions roll back
}

// NewInbox names a consumer's inbox.
func NewInbox(on InboxDB, consumer string) *Inbox { return &Inbox{on: on, consumer: consumer} }

const (
	// Turns is how many keys of an inbox can be received at a time; those with the same turn wait for each other.
	Turns = 64
	// forgetAtOnce is how many ids are forgotten for each one noted, if they are out of their window.
	forgetAtOnce = 2
	// forgetAnew is when an inbox looks for ids that it took for forgotten.
	forgetAnew = time.Minute
)

// InboxRow has the facts that a call knows of its inbox, once its first round trip has come back.
type InboxRow struct {
	ID       int64
	Consumer string
	Stale    bool // rows that are read behind a lock may be from before it
	keep     time.Duration
	there    bool
	wait     time.Duration   // that is asked for, up to half of what it keeps
	fresh    map[string]bool // ids that are new
}

// Args of a statement about the inbox; {inbox} is its number once that is known.
func (box *InboxRow) Args(more Args) Args {
	return Args{"consumer": box.Consumer, "inbox": &box.ID, "wait": box.wait.Microseconds()}.With(more)
}

// batch begins a round trip with asking for the inbox.
func (i *Inbox) batch() (*Batch, *InboxRow) {
	b, box := &Batch{}, &InboxRow{Consumer: i.consumer, fresh: map[string]bool{}}
	b.Rows(func(scan Scan) error {
		var keep int64
		var stale bool
		err := scan(&box.ID, &keep, &stale)
		box.there, box.keep, box.Stale = true, time.Duration(keep)*time.Microsecond, box.Stale || stale
		return err
	}, "inbox_find", box.Args(nil))
	return b, box
}

// run sends a batch that began with asking for the inbox. Where each statement is a round trip, none follows if it is not there, or refuses.
func (i *Inbox) run(ctx context.Context, tx Runner, b *Batch, box *InboxRow) error {
	for n := range *b {
		if n > 0 && (*b)[n].If == nil {
			(*b)[n].If = func() bool { return box.there && box.wait <= box.keep/2 }
		}
	}
	if err := tx.Run(ctx, b); err != nil {
		return i.on.Explain(i.consumer, err)
	}
	if !box.there {
		return NoInbox(i.consumer)
	}
	return nil
}

// There is an error if there is no such inbox.
func (i *Inbox) There(ctx context.Context, tx Runner) error {
	b, box := i.batch()
	return i.run(ctx, tx, b, box)
}

// FirstOf notes ids and returns those that are new, in the order given, each once.
func (i *Inbox) FirstOf(ctx context.Context, tx Runner, ids ...string) ([]string, error) {
	for n, id := range ids {
		if err := penstock.ValidateReceived(&penstock.Message{ID: id}); err != nil {
			return nil, fmt.Errorf("id %d of %d: %w", n+1, len(ids), err)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	b, box := i.batch()
	i.see(b, box, ids)
	if err := i.run(ctx, tx, b, box); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		isNew := box.fresh[id]
		delete(box.fresh, id)
		return !isNew
	}), nil
}

// see notes ids, and forgets some that are old.
func (i *Inbox) see(b *Batch, box *InboxRow, ids []string) {
	i.mu.Lock()
	if time.Since(i.since) > forgetAnew {
		i.forgotten, i.since = time.Unix(0, 0), time.Now()
	}
	from := i.forgotten
	i.mu.Unlock()
	i.on.Forget(b, box, "received", Args{"from": from.UTC(), "most": forgetAtOnce * len(ids)}, func(at time.Time) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if at.After(i.forgotten) {
			i.forgotten = at
		}
	})
	i.on.See(b, box, ids, func(id string) { box.fresh[id] = true })
}

// InOrder notes a message that has a key and returns the messages that may be processed now.
func (i *Inbox) InOrder(ctx context.Context, tx Runner, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	if err := penstock.ValidateReceived(&m); err != nil {
		return nil, err
	}
	if wait < 0 {
		return nil, waitError(wait)
	}
	previous := m.Headers[penstock.HeaderPrevious]
	r := penstock.Released{Message: penstock.Message{ID: m.ID, Key: m.Key, Headers: m.Headers, Payload: m.Payload}}
	b, box := i.batch()
	box.wait = wait
	if m.Key != "" {
		i.on.Turn(b, box, turnOf(m.Key))
	}
	i.see(b, box, []string{m.ID})
	var st keyState
	if m.Key != "" {
		i.state(b, box, &st, &r, previous)
	}
	if err := i.run(ctx, tx, b, box); err != nil {
		return nil, err
	}
	switch {
	case wait > box.keep/2:
		return nil, waitError(wait)
	case m.Key != "" && box.Stale:
		return nil, i.on.Stale()
	case !box.fresh[m.ID]:
		return nil, nil
	case m.Key == "":
		return []penstock.Released{r}, nil
	}
	if previous != "" && (!st.received || st.held) {
		if st.received || !st.missing {
			headers := HeadersText(m.Headers)
			b := new(Batch).Do("inbox_hold", box.Args(Args{"id": m.ID, "previous": previous, "key": m.Key, "headers": headers, "payload": NotNil(m.Payload)}))
			return nil, i.on.Explain(i.consumer, tx.Run(ctx, b))
		}
		r.Gap, r.Missing = true, previous
	}
	return i.release(ctx, tx, box, r, previous, &st, nil)
}

func waitError(wait time.Duration) error {
	return &penstock.FieldError{Field: "wait", Problem: fmt.Sprintf("is %s", wait), Hint: "give at most half of the time that the inbox keeps ids"}
}

// Due returns messages whose predecessor did not arrive in time. For up to n keys it returns the message after the gap, with
// Gap and Missing set, and those that follow it.
func (i *Inbox) Due(ctx context.Context, tx Runner, n int, passingOver ...string) (all []penstock.Released, err error) {
	if n < 1 || n > 1000 {
		return nil, &penstock.FieldError{Field: "n", Problem: fmt.Sprintf("is %d", n), Hint: "use 1 to 1000, and call Due again for more"}
	}
	passingOver = slices.Clone(passingOver)
	for found := 0; found < n; {
		var key string
		b, box := i.batch()
		b.Row(new(bool), "inbox_due_key", box.Args(Args{"none": len(passingOver) == 0, "keys": passingOver}), &key)
		if err := i.run(ctx, tx, b, box); err != nil || key == "" {
			return all, err
		}
		if box.Stale {
			return nil, i.on.Stale()
		}
		released, err := i.dueOf(ctx, tx, box, key)
		if err != nil {
			return nil, err
		}
		if len(released) == 0 { // another transaction was quicker
			passingOver = append(passingOver, key)
			continue
		}
		all = append(all, released...)
		found++
	}
	return all, nil
}

// dueOf waits for the turn of a key and releases its messages that are due then.
func (i *Inbox) dueOf(ctx context.Context, tx Runner, box *InboxRow, key string) ([]penstock.Released, error) {
	var r penstock.Released
	var previous string
	var there, received bool
	var headers []byte
	b := &Batch{}
	i.on.Turn(b, box, turnOf(key))
	b.Row(&there, "inbox_due", box.Args(Args{"key": key}), &r.ID, &r.Key, &headers, &r.Payload, &previous, &received)
	if err := tx.Run(ctx, b); err != nil {
		return nil, i.on.Explain(i.consumer, err)
	}
	if box.Stale {
		return nil, i.on.Stale()
	}
	if !there {
		return nil, nil
	}
	r.Headers = Headers(headers)
	var st keyState
	b = &Batch{}
	i.state(b, box, &st, &r, previous)
	if err := tx.Run(ctx, b); err != nil {
		return nil, i.on.Explain(i.consumer, err)
	}
	if !received {
		r.Gap, r.Missing = true, previous
	}
	return i.release(ctx, tx, box, r, previous, &st, func(b *Batch) {
		b.Do("delete from {schema}.held where inbox_id = {inbox} and id = {id}", box.Args(Args{"id": r.ID}))
		if !received {
			noteGap(i.on, b, box, previous, r.Key, &r.ID, false)
		}
	})
}

// keyState is the inbox's knowledge around a message.
type keyState struct {
	instead                 *string // the message that was handed over in its place, if it was reported missing; "": nothing was
	received, held, missing bool    // its predecessor
	parts                   inorder.Parts
	follow                  []follower
}

// follower is held for a message, or for another that is held for it.
type follower struct {
	penstock.Released
	previous string
	instead  *string
}

func (i *Inbox) state(b *Batch, box *InboxRow, st *keyState, r *penstock.Released, previous string) {
	args := box.Args(Args{"id": r.ID, "previous": previous, "key": r.Key})
	b.Rows(func(scan Scan) error {
		var head, behind *string
		if err := scan(&st.instead, &st.received, &st.held, &st.missing, &head, &behind); err != nil || head == nil {
			return err
		}
		if behind == nil {
			behind = new(string)
		}
		var err error
		st.parts, err = inorder.Read(*head, *behind)
		return err
	}, "inbox_state", args)
	b.Rows(func(scan Scan) error {
		var next follower
		var headers []byte
		if err := scan(&next.ID, &next.Key, &headers, &next.Payload, &next.previous, &next.instead); err != nil {
			return err
		}
		next.Headers = Headers(headers)
		st.follow = append(st.follow, next)
		return nil
	}, "inbox_follow", args)
}

// release takes out the messages that were held for r, and those held for them, and returns all of it in order, r first.
func (i *Inbox) release(ctx context.Context, tx Runner, box *InboxRow, r penstock.Released, previous string, st *keyState, also func(b *Batch)) ([]penstock.Released, error) {
	b := &Batch{}
	if also != nil {
		also(b)
	}
	parts := st.parts.HandOver(&r, previous, st.instead)
	released, ids := []penstock.Released{r}, []string{}
	for _, f := range st.follow {
		parts = parts.HandOver(&f.Released, f.previous, f.instead)
		released, ids = append(released, f.Released), append(ids, f.ID)
	}
	if len(ids) > 0 {
		b.Do("delete from {schema}.held where inbox_id = {inbox} and {id in ids}", box.Args(Args{"ids": ids}))
	}
	if !slices.Equal(parts, st.parts) {
		i.on.Forget(b, box, "key_heads", Args{"most": forgetAtOnce}, func(time.Time) {})
		b.Do("inbox_head", box.Args(Args{"key": r.Key, "id": parts.Head(), "behind": parts.Behind()}))
	}
	if len(*b) == 0 {
		return released, nil
	}
	return released, i.on.Explain(i.consumer, tx.Run(ctx, b))
}

// noteGap notes a gap, before next or, as nothing has followed yet, nil, and forgets some that are old.
func noteGap(on InboxDB, b *Batch, box *InboxRow, missing, key string, next *string, discarded bool) {
	on.Forget(b, box, "gaps", Args{"most": forgetAtOnce}, func(time.Time) {})
	b.Do("inbox_gap", box.Args(Args{"id": missing, "key": key, "next": next, "discarded": discarded}))
}

// NoInbox of the consumer is there.
func NoInbox(consumer string) error {
	return penstock.WithHint(fmt.Errorf("%w: of %q", penstock.ErrNoInbox, consumer), "create it with: penstock inbox create %s", shell.Word(consumer))
}

// turnOf is which messages wait for each other.
func turnOf(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % Turns)
}
