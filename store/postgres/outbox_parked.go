package postgres

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
)

// A parked key is the messages of one key, or one message out of order; see
// schema/functions/parked.sql.
func keyName(key string) string { return "k" + key }

func seqName(seq int64) string { return "s" + strconv.FormatInt(seq, 10) }

// keyOf is the key of that name, "" for a message out of order.
func keyOf(name string) string {
	if name[0] == 'k' {
		return name[1:]
	}
	return ""
}

// fetchedKey is a key of a batch of parked messages: messages[from:to] of the batch.
type fetchedKey struct {
	name     string
	history  pg.History // of the first
	from, to int
	p        []int64 // where they are in the key
}

// keyState is a new state of a parked key, as settle.sql takes it.
type keyState struct {
	name  string
	after *int64 // of a key in flight: it continues after this p; nil: it begins
	ord   *int64 // the first message parked in the same write, by its place in it
	delay time.Duration
	held  *int64 // seq of the dead letter that holds it
	pg.History
}

// parking gathers the messages that one write parks, and the new states of keys.
type parking struct {
	outbox, deadLetters parkedRows
	states              []*keyState
	byName              map[string]*keyState
	over                []string // keys of which none is in flight any more
}

// parkedRows are messages to copy, in order, and the names of their keys.
type parkedRows struct {
	seqs  []int64
	names []string
}

func (r *parkedRows) add(seq int64, name string) *int64 {
	r.seqs, r.names = append(r.seqs, seq), append(r.names, name)
	ord := int64(len(r.seqs))
	return &ord
}

func (p *parking) empty() bool { return len(p.states) == 0 && len(p.outbox.seqs) == 0 }

func (p *parking) state(name string) (l *keyState, isNew bool) {
	if l := p.byName[name]; l != nil {
		return l, false
	}
	l = &keyState{name: name}
	if p.byName == nil {
		p.byName = map[string]*keyState{}
	}
	p.byName[name] = l
	p.states = append(p.states, l)
	return l, true
}

// park adds a message of the outbox to its key.
func (p *parking) park(name string, m *penstock.Message, v *driver.Verdict) {
	ord := p.outbox.add(m.Seq, name)
	l, isNew := p.state(name)
	if l.ord == nil {
		l.ord = ord
	}
	if isNew {
		l.delay, l.History = v.RetryIn, pg.History{}.And(v.Failures)
	}
}

// parkDeadLetter parks a dead letter that was sent back alone.
func (p *parking) parkDeadLetter(m *penstock.Message, v *driver.Verdict, h pg.History) {
	name := seqName(m.Seq)
	l, _ := p.state(name)
	l.ord, l.delay, l.History = p.deadLetters.add(m.Seq, name), v.RetryIn, h.And(v.Failures)
}

// hold begins a parked key that a dead letter of the outbox holds.
func (p *parking) hold(name string, seq int64) {
	l, isNew := p.state(name)
	l.held = &seq
	if isNew {
		var none int64
		l.ord = &none
	}
}

// release makes a key due that is held or waits. Without a history its head keeps its own.
func (p *parking) release(name string, head int64, h pg.History) {
	l, _ := p.state(name)
	after := head - 1
	l.after, l.held, l.History = &after, nil, h
}

// settle follows the verdicts on a key in flight from the first that is new, and calls dead for those that are. It returns how
// many messages left the key.
func (p *parking) settle(out *fetchedKey, n *news, dead func(*penstock.Message, *driver.Verdict, pg.History)) (left int64) {
	i, h, stays := out.from, out.history, false
	for ; i < out.to && !n.settles(i); i++ {
		h = pg.History{} // the first was settled before
	}
	if i == out.to {
		return 0
	}
	l, _ := p.state(out.name)
	after := out.p[i-out.from] - 1
	for ; i < out.to && !stays && n.settles(i); i++ {
		v := n.verdict(i)
		if v.Outcome == driver.Parked {
			h = h.And(v.Failures)
			l.delay, stays = v.RetryIn, true
			break
		}
		v.Hold = v.Hold && keyOf(out.name) != ""
		if v.Outcome == driver.Dead {
			dead(&n.messages[i], &v, h)
		}
		after, h = out.p[i-out.from], pg.History{}
		left++
		if stays = v.Hold; stays {
			seq := n.messages[i].Seq
			l.held = &seq
		}
	}
	l.after, l.History = &after, h
	if stays || i == out.to {
		p.over = append(p.over, out.name)
	}
	return left
}

// params are those of settle.sql for parked messages.
func (p *parking) params() pgx.StrictNamedArgs {
	names, states := make([]string, len(p.states)), make([]map[string]any, len(p.states))
	for i, l := range p.states {
		names[i] = l.name
		states[i] = map[string]any{"after": l.after, "ord": l.ord, "delay_us": l.delay.Microseconds(), "held": l.held,
			"attempt": l.Attempt, "failures": json.RawMessage(l.JSON()), "since": orNullTime(l.Since)}
	}
	// Dead letters come behind the rows copied from the outbox.
	for i, name := range p.deadLetters.names {
		*p.byName[name].ord = int64(len(p.outbox.seqs) + i + 1)
	}
	return pgx.StrictNamedArgs{"parked_seqs": notNil(p.outbox.seqs), "parked_names": p.outbox.names, "parked_dead_seqs": p.deadLetters.seqs, "parked_dead_names": p.deadLetters.names,
		"keys": names, "states": states}
}

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func orNullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
