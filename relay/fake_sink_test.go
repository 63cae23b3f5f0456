package relay

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
)

// sink records what it confirms and checks what every sink may rely on.
type sink struct {
	t       testing.TB
	inOrder bool
	outbox  *outbox // if set, nothing may be sent that has to wait according to it
	// answer decides about one message; nil: confirmed.
	answer func(m *penstock.Message) error
	// before is called before a Send is answered, and may block.
	before func(ctx context.Context, msgs []penstock.Message)

	mu        sync.Mutex
	held      map[string]bool
	seen      map[int64]bool // confirmed at least once
	never     map[int64]bool // refused permanently
	running   int
	maxRun    int
	sends     []send
	confirmed []penstock.Message // in order, with repetitions
	attempts  []penstock.Message // all that were tried
}

type send struct {
	at time.Time
	n  int
}

func (k *sink) KeepsOrder() bool { return k.inOrder }

func (k *sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	if k.outbox != nil {
		k.outbox.checkTurn(k, msgs)
	}
	k.mu.Lock()
	if k.held == nil {
		k.held, k.seen, k.never = map[string]bool{}, map[int64]bool{}, map[int64]bool{}
	}
	k.running++
	k.maxRun = max(k.maxRun, k.running)
	k.sends = append(k.sends, send{time.Now(), len(msgs)})
	mine := map[string]int{}
	for _, m := range msgs {
		if m.Key == "" {
			continue
		}
		if k.held[m.Key] {
			k.t.Errorf("key %q is sent by two Sends at once", m.Key)
		}
		mine[m.Key]++
		if mine[m.Key] > 1 && !k.inOrder {
			k.t.Errorf("key %q twice in one Send", m.Key)
		}
	}
	for key := range mine {
		k.held[key] = true
	}
	k.mu.Unlock()

	if k.before != nil {
		k.before(ctx, msgs)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.running--
	for key := range mine {
		delete(k.held, key)
	}
	var errs []error
	failed := map[string]error{}
	for i := range msgs {
		m := &msgs[i]
		var err error
		if ctx.Err() != nil {
			err = penstock.Unavailable(ctx.Err())
		} else if err = failed[m.Key]; err == nil || m.Key == "" {
			k.attempts = append(k.attempts, *m)
			if k.answer != nil {
				err = k.answer(m)
			} else {
				err = nil
			}
		}
		if err == nil {
			k.confirmed = append(k.confirmed, *m)
			k.seen[m.Seq] = true
			continue
		}
		failed[m.Key] = err
		if penstock.IsPermanent(err) {
			k.never[m.Seq] = true
		}
		if errs == nil {
			errs = make([]error, len(msgs))
		}
		errs[i] = err
	}
	return errs
}

func (k *sink) Close(context.Context) error { return nil }

func (k *sink) confirmedOnce(seq int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen[seq]
}

// through reports whether a message was confirmed or permanently refused. Later messages of its
// key then need not wait for it.
func (k *sink) through(seq int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen[seq] || k.never[seq]
}

func (k *sink) sent() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.sends)
}

func (k *sink) delivered() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.confirmed)
}

// firsts returns the first confirmation of each message, in order, per key.
func (k *sink) firsts() map[string][]int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := map[int64]bool{}
	byKey := map[string][]int64{}
	for _, m := range k.confirmed {
		if !seen[m.Seq] {
			seen[m.Seq] = true
			byKey[m.Key] = append(byKey[m.Key], m.Seq)
		}
	}
	return byKey
}
