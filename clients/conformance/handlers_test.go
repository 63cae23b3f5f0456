package conformance_test

import (
	"context"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// What a handler throws is read in the program: where that fails, too, the job has failed like any other, and those behind it run.
func TestUnreadableFailures(t *testing.T) {
	each(t, func(g *goal, l *language) {
		q := g.queue()
		g.enqueue("bad", "good")
		var ran seen
		stop := g.working(q, func(_ context.Context, j penstock.Job) error {
			ran.add(j)
			if string(j.Payload) == "bad" {
				return errUnreadable
			}
			return nil
		}, work.Options{Concurrency: 1})
		g.eventually("one job is done, and one is to be tried again", func() bool { s := g.status(); return s.Delayed == 1 && s.Ready+s.Running == 0 })
		must(g, stop())
		if ran.attempts() != "bad 1, good 1" {
			g.Errorf("handlers ran as %q, want both once", ran.attempts())
		}
	})
}
