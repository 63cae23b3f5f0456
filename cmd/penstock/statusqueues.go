package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// unattended is how old a ready job is when status says that no worker runs.
// Younger ones may well be about to be claimed.
const unattended = 10 * time.Second

func (w *statusWriter) queues(queues []penstock.QueueStatus) error {
	columns := []column{{"QUEUE", 32, false}, {title: "READY", right: true}, {title: "OLDEST", right: true}, {title: "RUNNING", right: true},
		{title: "DELAYED", right: true}, {title: "WAITING", right: true}, {title: "DEAD", right: true}, {title: "SIZE", right: true}}
	if w.wide {
		columns = append(columns, column{title: "SEGMENTS"}, column{title: "ORDER"})
	}
	t := w.table(columns...)
	var notes []string
	for i := range queues {
		q := &queues[i]
		cells := []string{q.Queue, count(q.Ready), age(q.OldestAge), runningText(q), count(q.Delayed), count(q.Waiting), count(q.DeadLetters), size(q.Bytes), segments(q.Segments), string(q.Order)}
		if err := t.row(cells[:len(columns)]...); err != nil {
			return err
		}
		notes = append(notes, queueNotes(q)...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if err := w.groups(queues); err != nil {
		return err
	}
	w.notes(notes)
	return nil
}

// groups writes those that were asked for.
func (w *statusWriter) groups(queues []penstock.QueueStatus) error {
	t := w.table(column{"QUEUE", 24, false}, column{"GROUP", 24, false}, column{title: "READY", right: true}, column{title: "OLDEST", right: true}, column{title: "RUNNING", right: true},
		column{title: "DELAYED", right: true}, column{title: "WAITING", right: true}, column{title: "DEAD", right: true})
	any := false
	for i := range queues {
		for _, g := range queues[i].Groups {
			if !any {
				fmt.Fprintln(w)
				any = true
			}
			ready := count(g.Ready)
			if g.More {
				ready += "+"
			}
			if err := t.row(queues[i].Queue, g.Group, ready, age(g.OldestAge), count(g.Running), count(g.Delayed), count(g.Waiting), count(g.DeadLetters)); err != nil {
				return err
			}
		}
	}
	if !any {
		return nil
	}
	return t.flush()
}

// groupReader is what looking at groups needs of a store.
type groupReader interface {
	QueueGroups(ctx context.Context, queue, after string, most int) ([]penstock.GroupStatus, error)
}

// groupsAtOnce is how many groups are read with one call.
const groupsAtOnce = 1000

// readGroups fills in the groups of queues.
func readGroups(ctx context.Context, store any, queues []penstock.QueueStatus) error {
	reader, ok := store.(groupReader)
	if !ok {
		return nil // nor is there a queue
	}
	for i := range queues {
		for after := ""; ; {
			page, err := reader.QueueGroups(ctx, queues[i].Queue, after, groupsAtOnce)
			if errors.Is(err, penstock.ErrNoQueue) { // dropped meanwhile
				break
			}
			if err != nil {
				return aboutQueue(err, fmt.Sprintf("reading the groups of queue %q", queues[i].Queue), queues[i].Queue)
			}
			queues[i].Groups = append(queues[i].Groups, page...)
			if len(page) < groupsAtOnce {
				break
			}
			after = page[len(page)-1].Group
		}
	}
	return nil
}

// runningText shows the limit beside the figure.
func runningText(q *penstock.QueueStatus) string {
	if q.MaxRunning == nil || *q.MaxRunning == 0 {
		return count(q.Running)
	}
	return count(q.Running) + " of " + runningLimit(q.QueueSettings)
}

// queueNotes says what a person has to decide, and what explains the figures.
func queueNotes(q *penstock.QueueStatus) (notes []string) {
	note := func(format string, args ...any) {
		notes = append(notes, visible(q.Queue)+": "+fmt.Sprintf(format, args...))
	}
	for _, trouble := range q.Trouble {
		note("its space is not given back: %s", visible(trouble))
	}
	if q.DeadLetters > 0 {
		note("%s to retry or to discard: penstock dead list %s", plural(q.DeadLetters, "dead letter"), shellWord(q.Queue))
	}
	switch {
	case isPaused(q.QueueSettings):
		note("it is paused, no job begins: penstock queue resume %s", shellWord(q.Queue))
	case q.Ready > 0 && q.Running == 0 && q.OldestAge > unattended:
		note("no worker seems to run, and %s: penstock work %s", pluralVerb(q.Ready, "job", "is ready", "are ready"), shellWord(q.Queue))
	}
	return notes
}
