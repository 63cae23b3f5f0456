package relay

import (
	"errors"
	"log/slog"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// notes are log lines that are written once the mutex is free. There is one line of each kind, for
// the first event, with the number of events.
type notes [noteKinds]struct {
	n    int
	args []any
}

const (
	noteAgain = iota
	noteUnavailable
	notePark
	noteDead
	noteOpen
	noteStillOpen
	noteClosed
	noteKinds
)

var noteText = [noteKinds]struct {
	level slog.Level
	text  string
}{
	noteAgain:       {slog.LevelWarn, "a message was refused and will be sent again; others with its key wait"},
	noteUnavailable: {slog.LevelWarn, "the sink takes no messages like this one for now; it waits, with those behind it in its key, and no attempt is counted"},
	notePark:        {slog.LevelWarn, "a message keeps being refused and is parked, with those behind it in its key; other keys continue"},
	noteDead:        {slog.LevelError, "a message became a dead letter"},
	noteOpen:        {slog.LevelWarn, "the sink takes nothing; the subscription pauses, counts no attempts and resumes later"},
	noteStillOpen:   {slog.LevelWarn, "the sink still takes nothing"},
	noteClosed:      {slog.LevelInfo, "the sink is back"},
}

// note is about one message with its latest failure.
func (s *session) note(kind int, m *penstock.Message, v driver.Verdict, in time.Duration) {
	n := &s.notes[kind]
	if n.n++; n.n > 1 {
		return
	}
	attempt := v.Failures[len(v.Failures)-1].Attempt
	n.args = []any{"id", m.ID, "seq", m.Seq, "key", m.Key, "topic", m.Topic, "attempt", attempt, "err", v.Err()}
	if in > 0 {
		n.args = append(n.args, "in", in)
	}
	if kind == noteDead {
		n.args = append(n.args, "hold", v.Hold, "hint", "penstock dead show "+s.cfg.outbox+" "+m.ID+" --subscription "+s.cfg.subscription)
	}
	s.noted = true
}

// noteUnavailable is about a message that is parked and was not refused.
func (s *session) noteUnavailable(m *penstock.Message, err error, in time.Duration) {
	n := &s.notes[noteUnavailable]
	n.n++
	n.args, s.noted = []any{"id", m.ID, "seq", m.Seq, "key", m.Key, "topic", m.Topic, "err", err, "in", in}, true
}

// noteVerdict is about a message that is settled and was not delivered. Parking is logged only the
// first time.
func (s *session) noteVerdict(e *entry, v driver.Verdict) {
	m := &e.batch.Messages[e.index]
	switch {
	case len(v.Failures) == 0:
	case v.Outcome == driver.Dead:
		s.note(noteDead, m, v, 0)
	case m.Attempt == 1:
		s.note(notePark, m, v, v.RetryIn)
	}
}

// noteBreaker is about a breaker that is or was open.
func (s *session) noteBreaker(was, is breakerState, probe bool, err error, now time.Time) {
	b := &s.breaker
	if was != is {
		s.sinkDown, s.sinkWhy = time.Time{}, ""
		if is != closed {
			s.sinkDown = b.since
			if err != nil {
				s.sinkWhy = sinkError(err.Error())
			}
		}
		notify(s.sinkNews)
		s.cfg.Observer.Sink(SinkState(is))
	}
	kind, args := noteClosed, []any{"after", now.Sub(b.since).Round(time.Millisecond)}
	switch {
	case was == closed && is == unavailable:
		kind, args = noteOpen, []any{"err", withHint(err), "next_probe_in", b.until.Sub(now)}
	case was != is && is == refusing:
		kind, args = noteOpen, []any{"err", err, "refused_in_a_row", refusedInARow, "next_probe_in", b.until.Sub(now),
			"hint", "does the exchange or stream exist that messages go to, and may this user write to it?"}
	case is != closed && !probe:
		return // it ran into a known outage
	case is != closed:
		kind = noteStillOpen
		args = append(args, "err", err, "next_probe_in", b.until.Sub(now))
	}
	n := &s.notes[kind]
	n.n, n.args, s.noted = n.n+1, args, true
}

// unlock frees the mutex and writes the notes made under it.
func (s *session) unlock() {
	if !s.noted {
		s.mu.Unlock()
		return
	}
	written := s.notes
	s.notes, s.noted = notes{}, false
	s.mu.Unlock()
	for kind, n := range written {
		if n.n > 0 {
			s.noteLogs[kind].logMany(n.n, noteText[kind].level, noteText[kind].text, n.args...)
		}
	}
}

// withHint adds the next step to an outage, unless the sink has named one.
func withHint(err error) error {
	if _, ok := errors.AsType[*penstock.HintError](err); ok {
		return err
	}
	return penstock.WithHint(err, "is the broker up, and reachable with the configured URL?")
}
