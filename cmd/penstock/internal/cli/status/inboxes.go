package status

import (
	"fmt"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

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
