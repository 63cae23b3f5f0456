package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
)

// doneJob creates a job that is done and kept, and a running one with a report, and returns their ids.
func doneJob(t *testing.T, s store) (done, running int64) {
	ctx, day, q := t.Context(), 24*time.Hour, s.DriverQueue("mails")
	must(t, s.SetQueue(ctx, "mails", penstock.QueueSettings{KeepDone: &day}))
	_, err := q.Enqueue(ctx, penstock.NewJob{Group: "done", Kind: "digest"}, penstock.NewJob{Group: "done", Kind: "digest"})
	must(t, err)
	jobs, err := q.Claim(ctx, driver.Claim{Group: "done", Jobs: 2, Lease: time.Hour, Worker: "ann-1"})
	must(t, err)
	must(t, q.(driver.Reporter).Report(ctx, jobs[0].Lease, []byte(`{"mails": 17}`)))
	must(t, q.(driver.Reporter).Report(ctx, jobs[1].Lease, []byte(`"half of it"`)))
	_, err = q.Ack(ctx, jobs[0].Lease)
	must(t, err)
	return jobs[0].ID, jobs[1].ID
}

// withDone is a store that has kept jobs of 1 to 100 ms.
type withDone struct {
	store
}

func (withDone) DoneJobs(context.Context, admin.DoneJobQuery) (jobs []admin.DoneJob, next string, err error) {
	for ms := 100; ms > 0; ms-- {
		jobs = append(jobs, admin.DoneJob{ID: int64(ms), ClaimedAt: time.Unix(1, 0), FinishedAt: time.Unix(1, int64(ms)*1e6)})
	}
	return jobs, "", nil
}

// The history of done jobs and the reports of running ones can be read. Without a history the answer is empty.
func TestDoneJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		d := serve(t, s)
		must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
		read := func(query string) (l console.List[admin.DoneJob]) {
			code, text := d.ask("r", "GET", "/api/v1/queues/mails/done"+query, "")
			if code != 200 {
				t.Fatalf("%d %s", code, text)
			}
			must(t, json.Unmarshal(text, &l))
			return l
		}
		if l := read("?limit=5"); len(l.Items) != 0 || l.After != "" {
			t.Fatalf("nothing is kept, and there is %v", l)
		}
		if _, text := serve(t, withDone{s}).ask("r", "GET", "/queues/mails/done", ""); !strings.Contains(string(text), "These took p50 50 ms, p99 99 ms.") {
			t.Errorf("how long jobs took is missing: %s", text)
		}
		if _, keeps := s.(driver.HistoryStore); !keeps {
			return
		}
		done, running := doneJob(t, s)
		for query, want := range map[string]int{"": 1, fmt.Sprint("?id=", done): 1, fmt.Sprint("?id=", running): 0, "?kind=digest": 1, "?kind=welcome": 0, "?kind=digest&limit=1": 1} {
			if l := read(query); len(l.Items) != want || want == 1 && (l.Items[0].ID != done || l.Items[0].Worker != "ann-1" || l.Items[0].Kind != "digest" || string(l.Items[0].Report) != `{"mails":17}`) {
				t.Errorf("done%s: %+v", query, l)
			}
		}
		if code, _ := d.ask("r", "GET", "/api/v1/queues/mails/done?after=x", ""); code/100 != 4 {
			t.Errorf("a position that is none: %d", code)
		}
		for path, wants := range map[string][]string{
			"/queues/mails/done":              {"ann-1", `<a href="?kind=digest">digest</a>`, "{&#34;mails&#34;: 17}", fmt.Sprint(done)},
			"/queues/mails/done?kind=welcome": {"None that matches is kept"},
			"/queues/mails":                   {"half of it", `href="/ops/queues/mails/done"`},
		} {
			code, text := d.ask("r", "GET", path, "")
			for _, want := range wants {
				if code != 200 || !strings.Contains(string(text), want) {
					t.Errorf("%s: %d, without %q", path, code, want)
				}
			}
		}
	})
}
