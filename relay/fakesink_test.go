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
	// answer decides about one message; nil: confirmed.
	answer func(m *penstock.Message) error
	// before runs before a Send is answered, and may wait.
	before func(ctx context.Context, msgs []penstock.Message)

	mu        sync.Mutex
	held      map[string]bool
	seen      map[int64]bool // confirmed at least once
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
	k.mu.Lock()
	if k.held == nil {
		k.held, k.seen = map[string]bool{}, map[int64]bool{}
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
		if errs == nil {
			errs = make([]error, len(msgs))
		}
		errs[i] = err
	}
	return errs
}

func (k *sink) Close(context.Context) error { return nil }

// requireConfirmed fails the test if one of msgs was never confirmed.
func (k *sink) requireConfirmed(msgs []penstock.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range msgs {
		if !k.seen[m.Seq] {
			k.t.Errorf("message %d was settled and not confirmed", m.Seq)
		}
	}
}

func (k *sink) delivered() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.confirmed)
}

// firsts returns each message's first confirmation, in order, per key.
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
