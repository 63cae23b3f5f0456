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
	Seed        uint64         `json:"seed"`
	Seconds     float64        `json:"seconds"`
	Committed   int            `json:"committed"`
	Delivered   int            `json:"delivered"`
	Lost        int            `json:"lost"`
	Phantom     int            `json:"phantom"`
	OutOfOrder  int            `json:"out_of_order"`
	Duplicates  int            `json:"duplicates"`
	Unexplained int            `json:"unexplained_duplicates"`
	Dead        int            `json:"dead"`
	RolledBack  int            `json:"rolled_back"`
	Unknown     int            `json:"unknown_commits"`
	Takeovers   int            `json:"takeovers"`
	Jobs        jobSummary     `json:"jobs"`
	Faults      map[string]int `json:"faults"`
	// Other violations, by kind.
	Other map[string]int `json:"other_violations,omitempty"`
	Logs  string         `json:"logs,omitempty"`
}

// jobSummary is the part of the line that is about jobs.
type jobSummary struct {
	Committed  int `json:"committed"`
	Done       int `json:"done"`
	Lost       int `json:"lost"`
	Doubled    int `json:"doubled"` // after they were done, or two at a time, without need
	OutOfOrder int `json:"out_of_order"`
	Cancelled  int `json:"cancelled"`
	Dead       int `json:"dead"`
	Runs       int `json:"runs"`
	Again      int `json:"again"` // runs that were not a job's first
}

func summarize(seed uint64, took time.Duration, v *verdict, unknown int, faults map[string]int) summary {
	s := summary{Seed: seed, Seconds: float64(took.Milliseconds()) / 1000, Committed: v.Committed, Delivered: v.Delivered,
		Duplicates: v.Duplicates, Dead: v.Dead, RolledBack: v.RolledBack, Unknown: unknown, Takeovers: v.Takeovers, Faults: faults,
		Jobs: jobSummary{Committed: v.Jobs.Committed, Done: v.Jobs.Done, Cancelled: v.Jobs.Cancelled, Dead: v.Jobs.Dead, Runs: v.Jobs.Runs, Again: v.Jobs.Again}}
	for _, x := range v.Violations {
		ofJobs := x.Route == jobsRoute
		switch {
		case ofJobs && x.Kind == lost:
			s.Jobs.Lost++
			continue
		case ofJobs && (x.Kind == unexplained || x.Kind == together):
			s.Jobs.Doubled++
			continue
		case ofJobs && x.Kind == outOfOrder:
			s.Jobs.OutOfOrder++
			continue
		}
		switch x.Kind {
		case lost:
			s.Lost++
		case phantom:
			s.Phantom++
		case outOfOrder:
			s.OutOfOrder++
		case unexplained:
			s.Unexplained++
		default:
			if s.Other == nil {
				s.Other = map[string]int{}
			}
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
