package inboxtest

import (
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
