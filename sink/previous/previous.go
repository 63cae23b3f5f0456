// Package previous adds to messages, on their way to a broker, what a consumer's inbox
// needs to put them in order again: the id of the message before, of the same key. The
// inboxes themselves are in store/postgres and store/sqlite. See DESIGN.md.
package previous

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// DefaultKeys is how many keys Wrap remembers unless told otherwise: some
// 20 MB of ids and keys of usual length.
const DefaultKeys = 100_000

// MaxAge is how long ago a predecessor may have been sent. An inbox forgets ids
// after its window; it must not wait for one that it has forgotten.
const MaxAge = 24 * time.Hour

// Wrap returns a sink that adds the header penstock.HeaderPrevious to each
// message with a key: the id of the last message of that key that sink has confirmed.
// One that it refused, and that became a dead letter, is nobody's predecessor.
//
// It remembers the keys sent to last, up to keys (0: DefaultKeys), in memory, for
// MaxAge. After a restart, and of a key that was forgotten, the first message
// goes without the header, and a consumer that has not received the one before it
// cannot know.
//
// What comes again from further back, a replay or a dead letter that was sent back, has
// the message before it among those that came back so, and never becomes the
// predecessor of a newer one.
//
// The result is a driver.InOrderSink that keeps what sink promises.
func Wrap(sink driver.Sink, keys int) driver.InOrderSink {
	if keys <= 0 {
		keys = DefaultKeys
	}
	p := &previous{sink: sink, lasts: newLasts(keys)}
	if s, ok := sink.(driver.InOrderSink); ok {
		p.keepsOrder = s.KeepsOrder()
	}
	return p
}

type previous struct {
	sink       driver.Sink
	keepsOrder bool

	mu    sync.Mutex
	lasts *lasts
}

var _ driver.InOrderSink = (*previous)(nil)

// KeepsOrder implements driver.InOrderSink.
func (p *previous) KeepsOrder() bool { return p.keepsOrder }

// Close implements driver.Sink.
func (p *previous) Close(ctx context.Context) error { return p.sink.Close(ctx) }

// Send implements driver.Sink. No other call has a key of msgs now, so what is
// remembered of the key does not change meanwhile. Of two messages of a key in one
// call the second follows the first: a sink that keeps order does not accept it
// otherwise. One that does not is never given two.
func (p *previous) Send(ctx context.Context, msgs []penstock.Message) []error {
	sent, trails := slices.Clone(msgs), make(map[string]trail)
	now := time.Now()
	p.mu.Lock()
	for i := range sent {
		m := &sent[i]
		if m.Key == "" {
			continue
		}
		t, ok := trails[m.Key]
		if !ok {
			t = p.lasts.get(m.Key, now)
		}
		before := t.before(m)
		trails[m.Key] = t.after(m)
		switch {
		case before != "" && before != m.ID:
			headers := make(map[string]string, len(m.Headers)+1)
			maps.Copy(headers, m.Headers)
			headers[penstock.HeaderPrevious] = before
			m.Headers = headers
		case m.Headers[penstock.HeaderPrevious] != "": // of another outbox that it was forwarded from
			m.Headers = maps.Clone(m.Headers)
			delete(m.Headers, penstock.HeaderPrevious)
		}
	}
	p.mu.Unlock()

	errs := p.sink.Send(ctx, sent)

	p.mu.Lock()
	defer p.mu.Unlock()
	now = time.Now()
	for i := range sent {
		if m := &sent[i]; m.Key != "" && (errs == nil || errs[i] == nil) {
			kept := *m
			kept.ID = strings.Clone(m.ID) // a source's strings share large chunks of memory
			p.lasts.put(m.Key, p.lasts.get(m.Key, now).after(&kept), now)
		}
	}
	return errs
}

// step is one message that was sent.
type step struct {
	id  string
	seq int64
}

// trail is where a key has come to: its newest message, and the last one of those
// that came again from before that.
type trail struct {
	newest string
	seq    int64     // the highest that was sent
	at     time.Time // the latest CreatedAt that was sent
	again  step
}

// isNew reports whether m cannot have been sent before. A position tells, unless the
// database lost its last transactions: then positions come again, with messages that
// are younger than all that were sent.
func (t trail) isNew(m *penstock.Message) bool {
	return t.newest == "" || m.Seq == 0 || m.Seq > t.seq || m.CreatedAt.After(t.at) // 0: the source has no positions
}

// before is the id of the message that m follows, empty if none is known.
func (t trail) before(m *penstock.Message) string {
	switch {
	case t.isNew(m):
		return t.newest
	case m.Seq > t.again.seq:
		return t.again.id
	}
	return "" // a second replay begins
}

// after is the trail once m was sent.
func (t trail) after(m *penstock.Message) trail {
	if t.isNew(m) {
		t.newest, t.seq = m.ID, max(m.Seq, t.seq)
		if m.CreatedAt.After(t.at) {
			t.at = m.CreatedAt
		}
	} else if m.ID != t.newest {
		t.again = step{m.ID, m.Seq}
	}
	return t
}
