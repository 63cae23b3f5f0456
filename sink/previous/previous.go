// Package previous adds a header to messages on their way to a broker: the id of the
// message before, of the same key. A consumer's inbox needs it to restore the order of
// messages. The inboxes themselves are in the stores. See DESIGN.md.
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

// DefaultKeys is how many keys Wrap remembers by default. That takes about 20 MB with
// ids and keys of usual length.
const DefaultKeys = 100_000

// MaxAge is for how long Wrap remembers a sent message. An inbox forgets ids after its
// window, and must not wait for a message that it has forgotten.
const MaxAge = 24 * time.Hour

// Wrap returns a sink that adds the header penstock.HeaderPrevious to each
// message with a key: the id of the last message of that key that sink has confirmed.
// So a message that was refused and became a dead letter is not in any header.
//
// It remembers the keys that were used last, up to keys (0: DefaultKeys), in memory, for
// MaxAge. After a restart, or of a key that was forgotten, the first message has no
// header. Then a consumer cannot know whether it has missed the message before.
//
// Messages that are sent again, in a replay or as dead letters, get the id of the
// message before them among those that are sent again. They never become predecessors
// of newer messages.
//
// The result is a driver.InOrderSink. Its KeepsOrder returns that of sink.
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

// Send implements driver.Sink. No other call has a key of msgs now, so the trail of
// such a key does not change meanwhile. Of two messages of a key in one call, the
// second has the first as its predecessor: a sink that keeps order accepts the second
// only after the first. Other sinks never get two.
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

// trail is the state of a key: its newest message, and the last one of those that were sent again
// from before that.
type trail struct {
	newest string
	seq    int64     // the highest that was sent
	at     time.Time // the latest CreatedAt that was sent
	again  step
}

// isNew reports whether m cannot have been sent before. Its position decides, unless the database
// lost its last transactions. In that case positions are used again, with messages that are
// younger than all sent ones.
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
