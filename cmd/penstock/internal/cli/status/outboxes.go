package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// terminalColumns is the width of status tables, unless --wide is given. Any terminal, pager and
// chat shows it without breaking lines.
const terminalColumns = 80

// Writer writes status for people.
type Writer struct {
	io.Writer
	wide    bool // every column, and unshortened names
	suggest func(string) string
	now     time.Time
	begun   bool // something is written already
	err     error
	left    left
}

// begin separates the next part from the one before.
func (w *Writer) begin() {
	if w.begun {
		fmt.Fprintln(w)
	}
	w.begun = true
}

// flush writes a table, and keeps the first error.
func (w *Writer) flush(t *terminal.Table) { w.err = cmp.Or(w.err, t.Flush()) }

func (w *Writer) table(columns ...terminal.Column) *terminal.Table {
	fit := terminalColumns
	if w.wide {
		fit = 0
		for i := range columns {
			columns[i].Most = 0
		}
	}
	t := terminal.NewTable(w, columns...)
	t.Fit = fit
	return t
}

// subscription writes a line about a subscription. Without a status it writes none, because of
// unknown.
type subscription struct {
	of, name string
	status   *admin.SubscriptionStatus
	unknown  string
	unread   time.Duration // the age of the oldest message, without a subscription
}

func (w *Writer) outboxes(outboxes []admin.OutboxStatus) {
	if len(outboxes) == 0 {
		return
	}
	w.begin()
	o := w.table(terminal.Cut("OUTBOX", 32), terminal.Right("SIZE"), terminal.Left("SEGMENTS"), terminal.Left("KEEPS"))
	var subscriptions []subscription
	var notes []string
	for i := range outboxes {
		o.Row(outboxes[i].Outbox, terminal.Size(outboxes[i].Bytes), segments(outboxes[i].Segments), keeps(outboxes[i].Retention))
		if len(outboxes[i].Subscriptions) == 0 {
			subscriptions = append(subscriptions, subscription{of: outboxes[i].Outbox, name: "(none)", unread: outboxes[i].UnreadAge})
			if outboxes[i].UnreadAge > 0 {
				notes = append(notes, shell.Visible(outboxes[i].Outbox)+": no relay has ever run for it, and its messages wait: "+cli.RelayCommand(outboxes[i].Outbox))
			}
		}
		for j := range outboxes[i].Subscriptions {
			sub := &outboxes[i].Subscriptions[j]
			subscriptions = append(subscriptions, subscription{of: outboxes[i].Outbox, name: sub.Subscription, status: sub})
			argument := shell.Word(outboxes[i].Outbox) + " --subscription " + shell.Word(sub.Subscription)
			notes = append(notes, statusNotes(outboxes[i].Outbox, argument, "penstock relay --outbox "+argument+" --sink URL", sub, w.now)...)
		}
	}
	w.flush(o)
	fmt.Fprintln(w)
	w.subscriptions("OUTBOX", subscriptions)
	w.notes(notes)
}

// adopted writes about the subscriptions over adopted tables.
func (w *Writer) adopted(adopted []adoptedStatus) {
	if len(adopted) == 0 {
		return
	}
	w.begin()
	var subscriptions []subscription
	var notes []string
	for i := range adopted {
		s := &adopted[i]
		if s.Error != "" {
			notes = append(notes, cli.OfSubscription(s.Table, s.Subscription)+": "+shell.Visible(s.Error))
			subscriptions = append(subscriptions, subscription{of: s.Table, name: s.Subscription, unknown: "?"})
			continue
		}
		subscriptions = append(subscriptions, subscription{of: s.Table, name: s.Subscription, status: &s.SubscriptionStatus})
		notes = append(notes, statusNotes(s.Table, s.argument, "start one", &s.SubscriptionStatus, w.now)...)
	}
	w.subscriptions("TABLE", subscriptions)
	w.notes(notes)
}

// subscriptions writes the subscriptions' work and their relays, in one table if there is room.
func (w *Writer) subscriptions(of string, all []subscription) {
	figures := []terminal.Column{terminal.Right("BACKLOG"), terminal.Right("OLDEST"), terminal.Right("RATE"),
		terminal.Right("PARKED"), terminal.Right("KEYS"), terminal.Right("HELD"), terminal.Right("DEAD")}
	holders := []terminal.Column{terminal.Cut("HOLDER", 32), terminal.Right("EPOCH"), terminal.Left("SINCE")}
	names := []terminal.Column{terminal.Cut(of, 32), terminal.Cut("SUBSCRIPTION", 32)}
	parts := [][]terminal.Column{append(slices.Clone(names), figures...), append(names, holders...)}
	if w.wide {
		parts = [][]terminal.Column{append(parts[0], holders...)}
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
			} else if s.unread > 0 {
				cells["OLDEST"] = cli.Age(s.unread)
			}
			row := make([]string, len(columns))
			for i, c := range columns {
				if cell, known := cells[c.Title]; known {
					row[i] = cell
				} else {
					row[i] = s.unknown
				}
			}
			t.Row(row...)
		}
		w.flush(t)
	}
}

func subscriptionCells(cells map[string]string, s *admin.SubscriptionStatus, now time.Time) {
	cells["BACKLOG"], cells["OLDEST"], cells["RATE"] = terminal.CountOf(s.Backlog, "backlog", s.AtLeast), cli.Age(s.OldestAge), terminal.Rate(s.Rate)
	cells["PARKED"], cells["KEYS"], cells["HELD"], cells["DEAD"] = terminal.CountOf(s.Parked, "parked", s.AtLeast), terminal.CountOf(s.ParkedKeys, "parked_keys", s.AtLeast), terminal.CountOf(s.HeldKeys, "held_keys", s.AtLeast), terminal.CountOf(s.DeadLetters, "dead_letters", s.AtLeast)
	cells["HOLDER"], cells["EPOCH"], cells["SINCE"] = holder(s, now), fmt.Sprint(s.Epoch), holderSince(s, now)
}

// notes writes sentences below a table. If a note does not fit, the command at its end gets a
// separate line, for copying.
func (w *Writer) notes(notes []string) {
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
func (w *Writer) wrap(s string) string {
	if w.wide {
		return s
	}
	return terminal.Wrap(s, "  ", terminalColumns)
}

// statusNotes names decisions for a person, and explains figures. of is the subscription as an
// argument of other verbs, and start how a relay of it is started.
func statusNotes(outbox, of, start string, s *admin.SubscriptionStatus, now time.Time) (notes []string) {
	note := func(format string, args ...any) {
		notes = append(notes, cli.OfSubscription(outbox, s.Subscription)+": "+fmt.Sprintf(format, args...))
	}
	if s.DeadLetters > 0 {
		note("%s to retry or to discard: penstock dead list %s", cli.PluralOf(s.DeadLetters, "dead_letters", s.AtLeast, "dead letter"), of)
	}
	if s.HeldKeys > 0 {
		note("%s until a dead letter is decided about: penstock parked %s", terminal.PluralVerb(s.HeldKeys, "key", "is held", "are held"), of)
	}
	if waiting := s.Backlog + s.Parked; !cli.IsHeld(s, now) && waiting > 0 {
		note("no relay runs it, and %s: %s", terminal.PluralVerb(waiting, "message", "waits", "wait"), start)
	}
	if !cli.IsHeld(s, now) && s.Holder != "" {
		note("the lease of %s ended %s ago, and no relay has taken over", shell.Visible(s.Holder), cli.Since(s.LeaseUntil, now))
	}
	if !s.SinkDown.IsZero() && cli.IsHeld(s, now) {
		note("the sink has taken nothing for %s: %s", cli.Since(s.SinkDown, now), shell.Visible(s.SinkError))
	}
	if s.Replaying {
		note("a replay is under way")
	}
	return notes
}

// keeps shows the retention.
func keeps(r admin.Retention) string {
	if r == (admin.Retention{}) {
		return ""
	}
	return cli.RetentionText(r)
}

// segments shows the size of the ring and the place of the writers in it.
func segments(ring []admin.SegmentStatus) string {
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

func holder(s *admin.SubscriptionStatus, now time.Time) string {
	if !cli.IsHeld(s, now) {
		return "none"
	}
	return s.Holder
}

func holderSince(s *admin.SubscriptionStatus, now time.Time) string {
	if !cli.IsHeld(s, now) {
		return ""
	}
	return cli.Since(s.HolderSince, now)
}

// Inboxes writes about inboxes. It returns the first error of all writes.
func (w *Writer) Inboxes(inboxes []admin.InboxStatus) error {
	if len(inboxes) == 0 {
		return w.err
	}
	w.begin()
	t := w.table(terminal.Cut("CONSUMER", 32), terminal.Left("KEEPS"), terminal.Right("SIZE"), terminal.Left("SEGMENTS"),
		terminal.Right("HELD"), terminal.Right("PAYLOADS"), terminal.Left("NEXT GAP"), terminal.Right("GAPS"))
	var notes []string
	for i := range inboxes {
		b := &inboxes[i]
		bytes := ""
		if b.Bytes > 0 {
			bytes = terminal.Size(b.Bytes)
		}
		t.Row(b.Consumer, cli.SpanText(b.Keep), bytes, segments(b.Segments), terminal.Count(b.Held), terminal.Size(b.HeldBytes), cli.Until(b.NextGap, w.now), terminal.Count(b.Gaps))
		if late := w.now.Sub(b.NextGap); b.Held > 0 && late > unattended {
			notes = append(notes, fmt.Sprintf("%s: messages have been due for %s, and no consumer takes them: the consumer has to call inbox_due about once a second, or cannot process the first of them: penstock inbox held %s",
				shell.Visible(b.Consumer), cli.Coarse(late), shell.Word(b.Consumer)))
		}
	}
	w.flush(t)
	w.notes(notes)
	return w.err
}
