package inboxtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/suite"
)

// fixture is a database with one inbox.
type fixture struct {
	*suite.Env
	Instance
}

func (f *fixture) begin() Tx {
	tx := suite.Get(f.Begin(f.Context(), consumer)).Must(f, "Begin")
	f.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// in runs fn in a transaction that commits.
func (f *fixture) in(fn func(tx Tx)) {
	tx := f.begin()
	fn(tx)
	f.OK(tx.Commit())
}

func (f *fixture) wantFresh(tx Tx, ids []string, want ...string) {
	fresh := suite.Get(tx.FirstOf(f.Context(), ids...)).Must(f, "FirstOf")
	suite.MustEqual(f, fresh, want, "new of %q", ids)
}

func (f *fixture) receive(tx Tx, id, previous string, wait time.Duration, want ...string) {
	got := suite.Get(tx.InOrder(f.Context(), received("k", id, previous), wait)).Must(f, "InOrder")
	f.wantReleased(got, want...)
}

func (f *fixture) due(tx Tx, want ...string) {
	got := suite.Get(tx.Due(f.Context(), 10)).Must(f, "Due")
	f.wantReleased(got, want...)
}

func received(key, id, previous string) penstock.Message {
	m := penstock.Message{ID: id, Key: key, Payload: []byte(id)}
	if previous != "" {
		m.Headers = map[string]string{penstock.HeaderPrevious: previous}
	}
	return m
}

// chain are the first messages of a key: 0, 1, 2 …, each behind the one before it.
func chain(key string, n int) (all []penstock.Message) {
	for i := range n {
		previous := ""
		if i > 0 {
			previous = all[i-1].ID
		}
		m := received(key, fmt.Sprint(key, "-", i), previous)
		m.Payload = fmt.Append(nil, i)
		all = append(all, m)
	}
	return all
}

// effect has the effect of a message of a chain, which must come in its order.
func (f *fixture) effect(ctx context.Context, tx Tx, m penstock.Released) error {
	if m.Gap || m.Late {
		f.Errorf("%s: gap %v, late %v", m.ID, m.Gap, m.Late)
	}
	return tx.Effect(ctx, m.Key, string(m.Payload))
}

// wantEffects expects the effect of each message of chains once, in the order of its key.
func (f *fixture) wantEffects(keys, each int) {
	for k := range keys {
		var want []string
		for _, m := range chain("", each) {
			want = append(want, string(m.Payload))
		}
		suite.Equal(f, f.Effects(f, fmt.Sprint(k)), want, "done of key %d", k)
	}
}

func (f *fixture) wantReleased(got []penstock.Released, want ...string) {
	texts := []string{}
	for _, r := range got {
		text := r.ID
		if r.Gap {
			text += " after the gap " + r.Missing
		}
		if r.Late {
			text += " late"
		}
		texts = append(texts, text)
		if string(r.Payload) != r.ID || r.Key != "k" {
			f.Errorf("%s came with key %q and payload %q", r.ID, r.Key, r.Payload)
		}
	}
	if len(texts)+len(want) > 0 && !slices.Equal(texts, want) {
		f.Fatalf("released %q, want %q", texts, want)
	}
}
