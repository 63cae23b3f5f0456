package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The keys. Transactions that commit late keep their keys locked, so they have separate keys, which
// others touch now and then only.
var quickKeys, lateKeys = keys("k", 60), keys("late", 6)

// replacedKeys are unique keys of jobs, which replace one another. They are for stores that have a function for it.
var replacedKeys = keys("u", 3)

// crowd is how many jobs one waits for now and then. A barrier counts fewer than 256 in another way.
const crowd = 300

func keys(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%02d", prefix, i)
	}
	return all
}

// writer is one connection of a producer, running one transaction after the
// other. Of each producer's two, one runs short transactions at a given rate and
// the other such as publish first and commit late.
type writer struct {
	name    string
	url     string
	dialect dialect
	late    bool
	crowds  bool // now and then it writes many
	poison  bool
	pause   time.Duration // on average between transactions
	journal *journal
	random  *rand.Rand

	conn *producerConn
	n    int
	next int // how many transactions come before the next crowd
}

// errChosen is why a transaction rolls back without anything being wrong.
var errChosen = errors.New("rolled back by choice")

// run writes until ctx ends. Failures are wanted here: they are noted in
// the journal and the next transaction begins.
func (w *writer) run(ctx context.Context) {
	defer w.hangUp()
	next := time.Now()
	for ctx.Err() == nil {
		// A transaction that has begun is ended, so that few are in doubt.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		err := w.transaction(call)
		cancel()
		next = next.Add(between(w.random, w.pause/2, w.pause*3/2))
		if now := time.Now(); next.Before(now.Add(-time.Second)) {
			next = now // it does not catch up on an outage
		}
		wait := time.Until(next)
		if err != nil && !errors.Is(err, errChosen) {
			w.hangUp()
			wait = max(wait, 100*time.Millisecond)
		}
		sleep(ctx, wait)
	}
}

func (w *writer) hangUp() {
	if w.conn != nil {
		_ = w.conn.db.Close()
		w.conn = nil
	}
}

// transaction publishes some messages and commits or rolls back.
func (w *writer) transaction(ctx context.Context) error {
	if w.conn == nil {
		conn, err := w.dialect.connect(w.url)
		if err != nil {
			return err
		}
		w.conn = conn
	}
	if err := w.conn.begin(ctx); err != nil {
		return err
	}
	entries, err := w.publish(ctx)
	if err == nil && w.random.IntN(8) == 0 {
		err = errChosen
	}
	if err != nil {
		// Whether ROLLBACK arrives, the connection ends or the server is gone: what
		// never got a COMMIT does not.
		if errors.Is(err, errChosen) && w.random.IntN(4) == 0 || w.conn.tx.Rollback() != nil {
			w.hangUp()
		}
		w.journal.ended(entries, rolledBack)
		return err
	}
	if err := w.conn.tx.Commit(); err != nil {
		w.journal.ended(entries, unknown)
		return err
	}
	w.journal.ended(entries, committed)
	if w.next--; len(entries) > crowd {
		w.next = 200
	}
	return nil
}

func (w *writer) publish(ctx context.Context) (entries []*entry, err error) {
	if w.late {
		// The transaction has an id from here on. Others begin and commit before
		// it draws its sequence numbers, and more before it commits.
		if err := w.conn.exec(ctx, w.conn.mark); err != nil {
			return nil, err
		}
		sleep(ctx, between(w.random, 0, 300*time.Millisecond))
	}
	messages := w.plan()
	ties, seal, err := w.conn.ties(ctx, messages)
	if err != nil {
		return nil, err
	}
	for i, m := range messages {
		e, err := w.write(ctx, m, ties[i])
		if e != nil {
			entries = append(entries, e)
		}
		if err != nil {
			return entries, err
		}
	}
	if err := seal(); err != nil {
		return entries, err
	}
	if w.late {
		sleep(ctx, between(w.random, 100*time.Millisecond, 2500*time.Millisecond))
	}
	return entries, nil
}

// plan chooses the messages of a transaction, in an order of keys that makes no
// deadlock.
func (w *writer) plan() []message {
	messages := make([]message, 1+w.random.IntN(5))
	if w.crowds && w.next <= 0 {
		messages = make([]message, crowd+1)
		for i := range messages {
			w.n++
			messages[i] = message{ID: fmt.Sprintf("%s-%06d", w.name, w.n), Topic: topicSent}
			messages[i].Tenant = w.dialect.tenantOf(messages[i].ID)
		}
		return messages
	}
	quick, late, tenant := w.tenants()
	for i := range messages {
		w.n++
		m := message{ID: fmt.Sprintf("%s-%06d", w.name, w.n), Topic: w.topic(), OwnID: w.random.IntN(3) == 0}
		switch own, others := quick, late; {
		case w.random.IntN(4) == 0: // unordered
		case w.late:
			m.Key = others[w.random.IntN(len(others))]
		case w.dialect.barrier != "" && w.random.IntN(6) == 0:
			m.Key = replacedKeys[w.random.IntN(len(replacedKeys))]
		case w.random.IntN(50) == 0:
			m.Key = others[w.random.IntN(len(others))]
		default:
			m.Key = own[w.random.IntN(len(own))]
		}
		if m.Tenant = tenant; tenant == "" {
			m.Tenant = w.dialect.tenantOf(cmp.Or(m.Key, m.ID))
		}
		messages[i] = m
	}
	slices.SortStableFunc(messages, func(a, b message) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) })
	return messages
}

func (w *writer) topic() string {
	if w.poison && w.random.IntN(70) == 0 {
		return poisoned[w.random.IntN(len(poisoned))]
	}
	switch w.random.IntN(10) {
	case 0, 1:
		return topicPaid
	case 2, 3, 4:
		return topicSent
	}
	return topicPlaced
}

// write writes the business row and the message.
func (w *writer) write(ctx context.Context, m message, t tie) (*entry, error) {
	if m.Key != "" {
		n, err := w.conn.count(ctx, m)
		if err != nil {
			return nil, err
		}
		m.N = n
	}
	e := w.journal.wrote(m)
	payload, err := encode(m, t, w.random)
	if err != nil {
		return e, err
	}
	return e, w.conn.write(ctx, m, t, payload, w.random)
}

// encode makes a payload that shows which message it belongs to, of various sizes.
func encode(m message, t tie, random *rand.Rand) ([]byte, error) {
	size := random.IntN(300)
	if random.IntN(100) == 0 {
		size = 20_000
	}
	return json.Marshal(struct {
		message
		After   []string
		Padding string
	}{m, t.after, string(bytes.Repeat([]byte("x"), size))})
}

// sleep waits, until ctx ends at the latest.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
