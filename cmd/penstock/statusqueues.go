package main

import (
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock"
)

// unattended is how old a ready job is when status says that no worker runs.
// Younger ones may well be about to be claimed.
const unattended = 10 * time.Second

// writeQueues writes a table of queues that fits 120 columns with names of
// common length, and below it what somebody should know about.
func writeQueues(w io.Writer, queues []penstock.QueueStatus) error {
	t := newTable(w, column{"QUEUE", 32, false}, column{title: "ORDER"}, column{title: "SIZE", right: true}, column{title: "SEGMENTS"},
		column{title: "READY", right: true}, column{title: "OLDEST", right: true}, column{title: "RUNNING", right: true},
		column{title: "DELAYED", right: true}, column{title: "WAITING", right: true}, column{title: "DEAD", right: true})
	var notes []string
	for i := range queues {
		q := &queues[i]
		if err := t.row(q.Queue, string(q.Order), size(q.Bytes), segments(q.Segments), count(q.Ready), age(q.OldestAge), runningText(q),
			count(q.Delayed), count(q.Waiting), count(q.DeadLetters)); err != nil {
			return err
		}
		notes = append(notes, queueNotes(q)...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for i, note := range notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, note)
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
