package status

import (
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cli"
)

func (w *Writer) Inboxes(inboxes []penstock.InboxStatus) error {
	t := w.table(cli.Cut("CONSUMER", 32), cli.Left("KEEPS"), cli.Right("SIZE"), cli.Left("SEGMENTS"),
		cli.Right("HELD"), cli.Right("PAYLOADS"), cli.Left("NEXT GAP"), cli.Right("GAPS"))
	var notes []string
	for i := range inboxes {
		b := &inboxes[i]
		bytes := ""
		if b.Bytes > 0 {
			bytes = cli.Size(b.Bytes)
		}
		if err := t.Row(b.Consumer, cli.SpanText(b.Keep), bytes, segments(b.Segments), cli.Count(b.Held), cli.Size(b.HeldBytes), cli.Until(b.NextGap, w.now), cli.Count(b.Gaps)); err != nil {
			return err
		}
		if late := w.now.Sub(b.NextGap); b.Held > 0 && late > unattended {
			notes = append(notes, fmt.Sprintf("%s: messages have been due for %s, and nobody hands them over: the consumer has to call inbox_due about once a second, or cannot process the first of them: penstock inbox held %s",
				cli.Visible(b.Consumer), cli.Coarse(late), cli.ShellWord(b.Consumer)))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	w.notes(notes)
	return nil
}
