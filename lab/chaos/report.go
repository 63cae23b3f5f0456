package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// summary is the line on standard output.
type summary struct {
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	verdict
	Lost        int            `json:"lost"`
	Phantom     int            `json:"phantom"`
	OutOfOrder  int            `json:"out_of_order"`
	Unexplained int            `json:"unexplained_duplicates"`
	Unknown     int            `json:"unknown_commits"`
	Faults      map[string]int `json:"faults"`
	// Other violations, by kind.
	Other map[string]int `json:"other_violations,omitempty"`
	Logs  string         `json:"logs,omitempty"`
}

func summarize(seed uint64, took time.Duration, v *verdict, unknown int, faults map[string]int) summary {
	s := summary{Seed: seed, Seconds: float64(took.Milliseconds()) / 1000, verdict: *v, Unknown: unknown, Faults: faults, Other: map[string]int{}}
	messages := map[string]*int{lost: &s.Lost, phantom: &s.Phantom, outOfOrder: &s.OutOfOrder, unexplained: &s.Unexplained}
	jobs := map[string]*int{lost: &s.Jobs.Lost, outOfOrder: &s.Jobs.OutOfOrder, unexplained: &s.Jobs.Doubled, together: &s.Jobs.Doubled, phantom: &s.Phantom}
	for _, x := range v.Violations {
		count := messages[x.Kind]
		if x.Route == jobsRoute {
			count = jobs[x.Kind]
		}
		if count != nil {
			*count++
		} else {
			s.Other[x.Kind]++
		}
	}
	return s
}

func (s summary) write(w io.Writer) error { return json.NewEncoder(w).Encode(s) }

// shown is how many violations of each kind are printed in full.
const shown = 5

// tell writes the life of the messages that something happened to.
func tell(w io.Writer, e *evidence, v *verdict, c *chronicle) {
	told := map[string]int{}
	for _, x := range v.Violations {
		told[x.Kind]++
		if told[x.Kind] > shown {
			continue
		}
		subject := strings.TrimSpace(x.Route + " " + x.ID)
		fmt.Fprintf(w, "\nVIOLATION %s: %s: %s\n", x.Kind, subject, x.Text)
		if x.ID != "" {
			life(w, e, x, c)
		}
	}
	for kind, n := range told {
		if n > shown {
			fmt.Fprintf(w, "\n%s: %d more\n", kind, n-shown)
		}
	}
}

// life writes everything that is known of one message, in order of time.
func life(w io.Writer, e *evidence, x violation, c *chronicle) {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	add := func(at time.Time, format string, args ...any) {
		lines = append(lines, line{at, fmt.Sprintf(format, args...)})
	}
	if w, ok := e.journal[x.ID]; ok {
		add(w.Written, "written: key %q, number %d, topic %s", w.Key, w.N, w.Topic)
		add(w.Ended, "its transaction ended: %s", w.Outcome)
	}
	for _, run := range e.runs {
		if x.Route == jobsRoute && run.ID == x.ID {
			add(run.Begun, "its job %s begins in %s", run.Job, run.Worker)
			add(run.Ended, "ends in %s with %d", run.Worker, run.Status)
		}
	}
	if asked, was := e.cancelled[x.ID]; was {
		add(asked.From, "its job is to be cancelled; certain: %t", asked.Certain)
	}
	for _, r := range routes {
		if x.Route != "" && r.name != x.Route {
			continue
		}
		for i, a := range e.arrivals[r.name] {
			if a.Payload.ID == x.ID {
				add(a.At, "delivered by %s at place %d as %s", r.name, i+1, a.ID)
			}
		}
		for _, d := range e.dead[r.name] {
			if d.ID == x.ID {
				add(d.At, "dead letter of %s: %s", r.name, d.Reason)
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	if len(lines) == 0 {
		fmt.Fprintf(w, "  nothing is known of it\n")
		return
	}
	from, to := lines[0].at.Add(-slack), lines[len(lines)-1].at.Add(slack)
	if x.Kind == lost {
		to = to.Add(10 * lease)
	}
	for _, event := range e.events {
		if event.overlaps(from, to) && (x.Route == "" || len(event.Routes) == 0 || event.concerns(x.Route)) {
			add(event.From, "    %s %s, until %s", event.Name, event.Detail, strings.TrimSpace(c.at(event.To)))
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	for _, l := range lines {
		fmt.Fprintf(w, "  %s  %s\n", c.at(l.at), l.text)
	}
}
