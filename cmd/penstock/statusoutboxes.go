package main

import (
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock"
)

// writeStatus writes two tables, of outboxes and of their subscriptions, which
// fit 120 columns with names of common length, and below them what somebody
// should know about.
func writeStatus(w io.Writer, outboxes []penstock.OutboxStatus, now time.Time) error {
	o := newTable(w, column{"OUTBOX", 32, false}, column{title: "SIZE", right: true}, column{title: "SEGMENTS"}, column{title: "KEEPS"})
	s := newTable(w, subscriptionColumns("OUTBOX")...)
	var notes []string
	for i := range outboxes {
		if err := o.row(outboxes[i].Outbox, size(outboxes[i].Bytes), segments(outboxes[i].Segments), keeps(outboxes[i].Retention)); err != nil {
			return err
		}
		if len(outboxes[i].Subscriptions) == 0 {
			if err := s.row(outboxes[i].Outbox, "(none)", "", "", "", "", "", "", "", "", "", ""); err != nil {
				return err
			}
		}
		for j := range outboxes[i].Subscriptions {
			sub := &outboxes[i].Subscriptions[j]
			if err := s.row(subscriptionRow(outboxes[i].Outbox, sub, now)...); err != nil {
				return err
			}
			notes = append(notes, statusNotes(outboxes[i].Outbox, shellWord(outboxes[i].Outbox)+" --subscription "+shellWord(sub.Subscription), sub, now)...)
		}
	}
	if err := o.flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := s.flush(); err != nil {
		return err
	}
	writeNotes(w, notes)
	return nil
}

// writeAdopted writes a table of the subscriptions over adopted tables.
func writeAdopted(w io.Writer, adopted []adoptedStatus, now time.Time) error {
	t := newTable(w, subscriptionColumns("TABLE")...)
	var notes []string
	for i := range adopted {
		s := &adopted[i]
		if s.Error != "" {
			notes = append(notes, ofSubscription(s.Table, s.Subscription)+": "+visible(s.Error))
			if err := t.row(s.Table, s.Subscription, "?", "?", "?", "?", "?", "?", "?", "?", "?", "?"); err != nil {
				return err
			}
			continue
		}
		if err := t.row(subscriptionRow(s.Table, &s.SubscriptionStatus, now)...); err != nil {
			return err
		}
		notes = append(notes, statusNotes(s.Table, s.argument, &s.SubscriptionStatus, now)...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	writeNotes(w, notes)
	return nil
}

func writeNotes(w io.Writer, notes []string) {
	for i, note := range notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, note)
	}
}

func subscriptionColumns(first string) []column {
	return []column{{first, 18, false}, {"SUBSCRIPTION", 20, false}, {title: "BACKLOG", right: true}, {title: "OLDEST", right: true},
		{title: "RATE", right: true}, {title: "PARKED", right: true}, {title: "KEYS", right: true}, {title: "HELD", right: true},
		{title: "DEAD", right: true}, {"HOLDER", 20, false}, {title: "EPOCH", right: true}, {title: "SINCE"}}
}

func subscriptionRow(of string, s *penstock.SubscriptionStatus, now time.Time) []string {
	return []string{of, s.Subscription, count(s.Backlog), age(s.OldestAge), rate(s.Rate),
		count(s.Parked), count(s.ParkedKeys), count(s.HeldKeys), count(s.DeadLetters),
		holder(s, now), fmt.Sprint(s.Epoch), holderSince(s, now)}
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
