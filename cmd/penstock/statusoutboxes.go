package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
)

// terminalColumns is how wide the tables of status are, unless --wide is given: what any
// terminal, pager and chat shows without breaking lines.
const terminalColumns = 80

// statusWriter writes status for people.
type statusWriter struct {
	io.Writer
	wide    bool // every column, and names as long as they are
	suggest func(string) string
	now     time.Time
}

func (w *statusWriter) table(columns ...column) *table {
	fit := terminalColumns
	if w.wide {
		fit = 0
		for i := range columns {
			columns[i].most = 0
		}
	}
	t := newTable(w, columns...)
	t.fit = fit
	return t
}

// subscription is a line about one. Without a status there is none, because of unknown.
type subscription struct {
	of, name string
	status   *penstock.SubscriptionStatus
	unknown  string
}

func (w *statusWriter) outboxes(outboxes []penstock.OutboxStatus) error {
	o := w.table(column{"OUTBOX", 32, false}, column{title: "SIZE", right: true}, column{title: "SEGMENTS"}, column{title: "KEEPS"})
	var subscriptions []subscription
	var notes []string
	for i := range outboxes {
		if err := o.row(outboxes[i].Outbox, size(outboxes[i].Bytes), segments(outboxes[i].Segments), keeps(outboxes[i].Retention)); err != nil {
			return err
		}
		if len(outboxes[i].Subscriptions) == 0 {
			subscriptions = append(subscriptions, subscription{of: outboxes[i].Outbox, name: "(none)"})
		}
		for j := range outboxes[i].Subscriptions {
			sub := &outboxes[i].Subscriptions[j]
			subscriptions = append(subscriptions, subscription{of: outboxes[i].Outbox, name: sub.Subscription, status: sub})
			notes = append(notes, statusNotes(outboxes[i].Outbox, shellWord(outboxes[i].Outbox)+" --subscription "+shellWord(sub.Subscription), sub, w.now)...)
		}
	}
	if err := o.flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := w.subscriptions("OUTBOX", subscriptions); err != nil {
		return err
	}
	w.notes(notes)
	return nil
}

// adopted writes about the subscriptions over adopted tables.
func (w *statusWriter) adopted(adopted []adoptedStatus) error {
	var subscriptions []subscription
	var notes []string
	for i := range adopted {
		s := &adopted[i]
		if s.Error != "" {
			notes = append(notes, ofSubscription(s.Table, s.Subscription)+": "+visible(s.Error))
			subscriptions = append(subscriptions, subscription{of: s.Table, name: s.Subscription, unknown: "?"})
			continue
		}
		subscriptions = append(subscriptions, subscription{of: s.Table, name: s.Subscription, status: &s.SubscriptionStatus})
		notes = append(notes, statusNotes(s.Table, s.argument, &s.SubscriptionStatus, w.now)...)
	}
	if err := w.subscriptions("TABLE", subscriptions); err != nil {
		return err
	}
	w.notes(notes)
	return nil
}

// subscriptions writes what they have to do, and who does it: one table if there is room.
func (w *statusWriter) subscriptions(of string, all []subscription) error {
	figures := []column{{title: "BACKLOG", right: true}, {title: "OLDEST", right: true}, {title: "RATE", right: true},
		{title: "PARKED", right: true}, {title: "KEYS", right: true}, {title: "HELD", right: true}, {title: "DEAD", right: true}}
	holders := []column{{"HOLDER", 32, false}, {title: "EPOCH", right: true}, {title: "SINCE"}}
	names := []column{{of, 32, false}, {"SUBSCRIPTION", 32, false}}
	parts := [][]column{append(slices.Clone(names), figures...), append(names, holders...)}
	if w.wide {
		parts = [][]column{append(parts[0], holders...)}
	}
	for n, columns := range parts {
		if n > 0 {
			fmt.Fprintln(w)
		}
		t := w.table(columns...)
		for _, s := range all {
			cells := map[string]string{of: s.of, "SUBSCRIPTION": s.name}
			if s.status != nil {
				subscriptionCells(cells, s.status, w.now)
			}
			row := make([]string, len(columns))
			for i, c := range columns {
				if cell, known := cells[c.title]; known {
					row[i] = cell
				} else {
					row[i] = s.unknown
				}
			}
			if err := t.row(row...); err != nil {
				return err
			}
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

func subscriptionCells(cells map[string]string, s *penstock.SubscriptionStatus, now time.Time) {
	cells["BACKLOG"], cells["OLDEST"], cells["RATE"] = count(s.Backlog), age(s.OldestAge), rate(s.Rate)
	cells["PARKED"], cells["KEYS"], cells["HELD"], cells["DEAD"] = count(s.Parked), count(s.ParkedKeys), count(s.HeldKeys), count(s.DeadLetters)
	cells["HOLDER"], cells["EPOCH"], cells["SINCE"] = holder(s, now), fmt.Sprint(s.Epoch), holderSince(s, now)
}

// notes writes sentences below a table. One that does not fit has the command that it
// ends with on a line of its own, whole, for copying.
func (w *statusWriter) notes(notes []string) {
	for i, note := range notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		before, command, _ := strings.Cut(note, ": penstock ")
		if command != "" {
			command = w.suggest("penstock " + command)
		}
		switch whole := before + ": " + command; {
		case command == "":
			fmt.Fprintln(w, w.wrap(note))
		case w.wide || utf8.RuneCountInString(whole) <= terminalColumns:
			fmt.Fprintln(w, whole)
		default:
			fmt.Fprintf(w, "%s\n  %s\n", w.wrap(before+":"), command)
		}
	}
}

// wrap breaks a sentence at spaces.
func (w *statusWriter) wrap(s string) string {
	if w.wide {
		return s
	}
	var out strings.Builder
	line := 0
	for i, word := range strings.Split(s, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case line+1+n > terminalColumns:
			out.WriteString("\n  ")
			line = 2
		default:
			out.WriteString(" ")
			line++
		}
		out.WriteString(word)
		line += n
	}
	return out.String()
}

// statusNotes says what a person has to decide, and what explains the figures. of is
// the subscription as an argument of other verbs.
func statusNotes(outbox, of string, s *penstock.SubscriptionStatus, now time.Time) (notes []string) {
	note := func(format string, args ...any) {
		notes = append(notes, ofSubscription(outbox, s.Subscription)+": "+fmt.Sprintf(format, args...))
	}
	if s.DeadLetters > 0 {
		note("%s to retry or to discard: penstock dead list %s", plural(s.DeadLetters, "dead letter"), of)
	}
	if s.HeldKeys > 0 {
		note("%s until a dead letter is decided about: penstock parked %s", pluralVerb(s.HeldKeys, "key", "is held", "are held"), of)
	}
	if waiting := s.Backlog + s.Parked; !isHeld(s, now) && waiting > 0 {
		note("no relay runs it, and %s: penstock relay", pluralVerb(waiting, "message", "waits", "wait"))
	}
	if !isHeld(s, now) && s.Holder != "" {
		note("the lease of %s ended %s ago, and nobody has taken over", visible(s.Holder), since(s.LeaseUntil, now))
	}
	if !s.SinkDown.IsZero() && isHeld(s, now) {
		note("the sink has taken nothing for %s: %s", since(s.SinkDown, now), visible(s.SinkError))
	}
	if s.Replaying {
		note("a replay is under way")
	}
	return notes
}

// keeps shows the retention.
func keeps(r penstock.Retention) string {
	if r == (penstock.Retention{}) {
		return ""
	}
	return retentionText(r)
}

// segments shows the size of the ring and where the writers are in it.
func segments(ring []penstock.SegmentStatus) string {
	if len(ring) == 0 {
		return ""
	}
	for _, s := range ring {
		if s.Current {
			return fmt.Sprintf("%d (in %d)", len(ring), s.Slot)
		}
	}
	return fmt.Sprint(len(ring))
}

func rate(perSecond float64) string {
	if perSecond >= 10 {
		return count(int64(perSecond+0.5)) + "/s"
	}
	return fmt.Sprintf("%.1f/s", perSecond)
}

// isHeld reports whether a relay has the subscription's lease.
func isHeld(s *penstock.SubscriptionStatus, now time.Time) bool {
	return s.Holder != "" && s.LeaseUntil.After(now)
}

func holder(s *penstock.SubscriptionStatus, now time.Time) string {
	if !isHeld(s, now) {
		return "nobody"
	}
	return s.Holder
}

func holderSince(s *penstock.SubscriptionStatus, now time.Time) string {
	if !isHeld(s, now) {
		return ""
	}
	return since(s.HolderSince, now)
}
