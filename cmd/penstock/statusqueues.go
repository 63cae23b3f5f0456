package main

import (
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
	w.notes(notes)
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
