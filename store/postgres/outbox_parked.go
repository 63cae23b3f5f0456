package postgres

import (
	"strconv"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
)

// A line is the messages of one key, or one message that stands alone; see
// schema/functions/parked.sql.
func lineOfKey(key string) string { return "k" + key }

func lineOfOne(seq int64) string { return "s" + strconv.FormatInt(seq, 10) }

// keyOf is the key of a line, "" for a message that stands alone.
func keyOf(line string) string {
	if line[0] == 'k' {
		return line[1:]
	}
	return ""
}

// handedOut is a line of a batch of parked messages: messages[from:to] of the batch.
// What is settled of it is before them.
type handedOut struct {
	line     string
	history  pg.History // of the first
	from, to int
	p        []int64 // where they are in the line
}

// step is how far a write brings a line that was handed out.
type step struct {
	out  *handedOut
	part []stage // of its batch
	next int     // the first of its messages that is not settled
	over bool    // none is in hand any more
}

// line is a new state of a line, as settle.sql takes it.
type line struct {
	name  string
	after *int64 // of a line that was handed out: it goes on after this p; nil: it begins
	ord   *int64 // the first message parked in the same write, by its place in it
	delay time.Duration
	held  *int64 // seq of the dead letter that holds it
	pg.History
}

// parking gathers what one write parks, and what becomes of the lines.
type parking struct {
	outbox, letters parkedRows
	lines           []*line
	byName          map[string]*line
	steps           []step
}

// parkedRows are messages to copy, in order, and the lines that they go to.
type parkedRows struct {
	seqs  []int64
	lines []string
}

func (r *parkedRows) add(seq int64, line string) *int64 {
	r.seqs, r.lines = append(r.seqs, seq), append(r.lines, line)
	ord := int64(len(r.seqs))
	return &ord
}

func (p *parking) empty() bool { return len(p.lines) == 0 && len(p.outbox.seqs) == 0 }

func (p *parking) line(name string) (l *line, isNew bool) {
	if l := p.byName[name]; l != nil {
		return l, false
	}
	l = &line{name: name}
	if p.byName == nil {
		p.byName = map[string]*line{}
	}
	p.byName[name] = l
	p.lines = append(p.lines, l)
	return l, true
}

// park adds a message of the outbox to its line.
func (p *parking) park(name string, m *penstock.Message, v *penstock.Verdict) {
	ord := p.outbox.add(m.Seq, name)
	l, isNew := p.line(name)
	if l.ord == nil {
		l.ord = ord
	}
	if isNew {
		l.delay, l.History = v.RetryIn, pg.History{}.And(v.Failures)
	}
}

// parkLetter makes a dead letter that was sent back a line of its own.
func (p *parking) parkLetter(m *penstock.Message, v *penstock.Verdict, h pg.History) {
	name := lineOfOne(m.Seq)
	l, _ := p.line(name)
	l.ord, l.delay, l.History = p.letters.add(m.Seq, name), v.RetryIn, h.And(v.Failures)
}

// hold begins a line that a dead letter of the outbox holds.
func (p *parking) hold(name string, seq int64) {
	l, isNew := p.line(name)
	l.held = &seq
	if isNew {
		var none int64
		l.ord = &none
	}
}

// release makes a held line due.
func (p *parking) release(name string, head int64) {
	l, _ := p.line(name)
	after := head - 1
	l.after, l.held, l.History = &after, nil, pg.History{}
}

// settle follows the verdicts on a line that was handed out, up to the first message
// that has none, and calls dead for those that are. It returns how many messages left
// the line.
func (p *parking) settle(out *handedOut, b *pending, dead func(*penstock.Message, *penstock.Verdict, pg.History)) (left int64) {
	if out.from == out.to || b.part != nil && b.part[out.from] == undecided {
		return 0
	}
	l, _ := p.line(out.line)
	after, h, i, stays := out.p[0]-1, out.history, out.from, false
	for ; i < out.to && !stays && (b.part == nil || b.part[i] != undecided); i++ {
		v := b.verdict(i)
		if v.Outcome == penstock.Parked {
			h = h.And(v.Failures)
			l.delay, stays = v.RetryIn, true
			break
		}
		v.Hold = v.Hold && keyOf(out.line) != ""
		if v.Outcome == penstock.Dead {
			dead(&b.messages[i], &v, h)
		}
		after, h = out.p[i-out.from], pg.History{}
		left++
		if stays = v.Hold; stays {
			seq := b.messages[i].Seq
			l.held = &seq
		}
	}
	l.after, l.History = &after, h
	p.steps = append(p.steps, step{out, b.part, i, stays || i == out.to})
	return left
}

// args are the parameters of settle.sql from $29 to $40.
func (p *parking) args() []any {
	n := len(p.lines)
	names, failures := make([]string, n), make([]string, n)
	after, ord, held := make([]*int64, n), make([]*int64, n), make([]*int64, n)
	delays, attempts, since := make([]int64, n), make([]int32, n), make([]*time.Time, n)
	for i, l := range p.lines {
		names[i], after[i], ord[i], held[i] = l.name, l.after, l.ord, l.held
		delays[i], attempts[i], failures[i], since[i] = l.delay.Microseconds(), int32(l.Attempt), l.JSON(), orNullTime(l.Since)
	}
	// Letters come behind what is copied from the outbox.
	for i, name := range p.letters.lines {
		*p.byName[name].ord = int64(len(p.outbox.seqs) + i + 1)
	}
	return []any{notNil(p.outbox.seqs), notNil(p.outbox.lines), notNil(p.letters.seqs), notNil(p.letters.lines),
		names, after, ord, delays, held, attempts, failures, since}
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
