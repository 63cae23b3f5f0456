package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/clients/conformance"
	"github.com/penstock/penstock/internal/test/docblock"
)

// The lines that README.md shows follow the protocol: Go's program answers such requests like that, and writes such events.
func TestReadme(t *testing.T) {
	t.Parallel()
	i := slices.IndexFunc(languages, func(l *language) bool { return l.Name == "go" })
	if i < 0 {
		t.Skip("PENSTOCK_CLIENTS leaves Go out")
	}
	p := languages[i].shared(t)
	g := newGoal(t, p)
	db := g.store.c.db
	g.queue() // jobs
	blocks := docblock.Of(t, "clients/conformance/README.md", "json")
	if len(blocks) != 3 {
		t.Fatalf("%d blocks", len(blocks))
	}
	lines := func(block int) []string { return strings.Split(strings.TrimSpace(blocks[block]), "\n") }

	tx, err := g.store.c.begin(g.ctx)
	must(t, err)
	for shown := range slices.Chunk(lines(0), 2) {
		request := args{}
		strictly(t, shown[0], &request)
		var want answer
		strictly(t, shown[1], &want)
		if request["tx"] != "2" || request["id"] != float64(want.ID) {
			t.Errorf("%s is not answered by %s", shown[0], shown[1])
		}
		op := request["op"].(string)
		delete(request, "op")
		delete(request, "id") // call numbers its requests
		request["tx"] = tx.tx
		var got json.RawMessage
		err := p.call(g.ctx, op, request, &got)
		if want.Error != nil { // each client words it differently
			if e := (*conformance.Error)(nil); !errors.As(err, &e) || e.SQLState != want.Error.SQLState || e.Field != want.Error.Field {
				t.Errorf("%s is answered with %#v, want %#v", shown[0], err, want.Error)
			}
		} else {
			must(t, err)
			var made, as conformance.Enqueued
			strictly(t, string(want.Result), &made)
			strictly(t, string(got), &as)
			if as.ID == 0 || as.Deduplicated != made.Deduplicated {
				t.Errorf("%s is answered with %s", shown[0], got)
			}
		}
	}
	_ = tx.Rollback(g.ctx)

	worker := lines(1)
	var shown conformance.Event
	strictly(t, worker[0], &shown)
	var outcome args
	strictly(t, worker[1], &outcome)
	var aborted conformance.Event
	strictly(t, lines(2)[0], &aborted)
	if outcome["call"] != shown.Call || aborted.Call != shown.Call || outcome["op"] != "outcome" {
		t.Errorf("%s and %s are not of the call of %s", worker[1], lines(2)[0], worker[0])
	}
	g.enqueue("hello")
	var started struct {
		Worker string `json:"worker"`
	}
	must(t, p.call(g.ctx, "work", args{"db": db, "queue": "jobs", "lease_ms": 1000, "concurrency": 1}, &started))
	event := func(n int) (e conformance.Event) { // no remoteWorker takes it
		g.eventually(fmt.Sprintf("%d events", n), func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if all := p.early[started.Worker]; len(all) >= n {
				e = all[n-1]
			}
			return e.Event != ""
		})
		return e
	}
	job := event(1)
	if job.Event != shown.Event || job.Call == "" || job.Job == nil || job.Job.Attempt != shown.Job.Attempt || !bytes.Equal(job.Job.Payload, shown.Job.Payload) || job.Job.LeaseUntil.IsZero() {
		t.Errorf("the event of a job is %+v, want such as %s", job, worker[0])
	}
	delete(outcome, "op")
	delete(outcome, "id")
	outcome["call"] = job.Call
	must(t, p.call(g.ctx, "outcome", outcome, nil))
	g.eventually("the job waits", func() bool { s := g.status(); return s.Delayed == 1 })

	execute(t, g.url, "select penstock.advance_queue('jobs', '1 hour')")
	again := event(2)
	if again.Job.ID != job.Job.ID || again.Job.Attempt != job.Job.Attempt {
		t.Errorf("behind the outcome of %s comes %+v, want the same job, no attempt spent", worker[1], again.Job)
	}
	execute(t, g.url, fmt.Sprintf("select penstock.cancel('jobs', '{%d}')", again.Job.ID))
	if e := event(3); e.Event != aborted.Event || e.Call != again.Call || e.Cause != aborted.Cause {
		t.Errorf("the event of a job that is cancelled is %+v, want such as %s", e, lines(2)[0])
	}
	must(t, p.call(g.ctx, "stop", args{"worker": started.Worker}, nil))
}

// strictly reads a line in which every field is known.
func strictly(t *testing.T, line string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
}
