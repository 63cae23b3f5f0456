package console_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
)

// Workers are listed with their jobs: where heartbeats are kept also those that are idle, silent or stopped, and elsewhere the page says so.
func TestWorkers(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		d := serve(t, s)
		for _, queue := range []string{"mails", "other"} {
			must(t, s.CreateQueue(t.Context(), queue, penstock.FIFO))
		}
		_, err := s.DriverQueue("mails").Enqueue(t.Context(), make([]penstock.NewJob, 12)...)
		must(t, err)
		claimed, err := s.DriverQueue("mails").Claim(t.Context(), driver.Claim{Jobs: 12, Lease: time.Minute, Worker: "busy"})
		must(t, err)
		_, keeps := s.(driver.WorkerStore)
		want := map[string]string{"busy": "unknown"}
		if keeps {
			want = map[string]string{"busy": "working", "idle": "idle", "gone": "stopped", "took": "working"} // took has taken a job since its heartbeat
			_, err := s.DriverQueue("mails").Enqueue(t.Context(), penstock.NewJob{})
			must(t, err)
			_, err = s.DriverQueue("mails").Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Minute, Worker: "took"})
			must(t, err)
			for name, queue := range map[string]string{"busy": "mails", "idle": "mails", "gone": "mails", "took": "mails", "elsewhere": "other"} {
				w := admin.Worker{Name: name, Version: "shop v1.2", StartedAt: time.Now().Add(-time.Hour), Concurrency: 20, Stopped: name == "gone"}
				if name == "busy" {
					w.Running = 12
				}
				must(t, s.DriverQueue(queue).(driver.Heartbeater).Heartbeat(t.Context(), w))
			}
		}
		code, text := d.ask("r", "GET", "/api/v1/workers?queue=mails", "")
		var all console.Workers
		must(t, json.Unmarshal(text, &all))
		if code != http.StatusOK || len(all.Items) != len(want) || all.Heartbeats != keeps {
			t.Fatalf("%d %s", code, text)
		}
		for _, w := range all.Items {
			if w.Queue != "mails" || w.State != want[w.Name] {
				t.Errorf("%s of %s is %s, want %s", w.Name, w.Queue, w.State, want[w.Name])
			}
			if w.Name == "busy" && (len(w.Jobs) != 12 || w.Running != 12 || !slices.Contains(w.Jobs, claimed[11].ID)) {
				t.Errorf("the busy one has %d, runs %v", w.Running, w.Jobs)
			}
		}
		if keeps {
			_, err = s.DriverQueue("mails").Extend(t.Context(), time.Millisecond, claimed[0].Lease)
			must(t, err)
			for state := ""; state != "silent"; {
				_, text := d.ask("r", "GET", "/api/v1/workers?queue=mails", "")
				must(t, json.Unmarshal(text, &all))
				state = all.Items[0].State
			}
		}
		code, page := d.ask("r", "GET", "/workers", "")
		if code != http.StatusOK || !strings.Contains(string(page), ">busy<") || !strings.Contains(string(page), "and 2 more") {
			t.Errorf("the page is %d %s", code, page)
		}
		if keeps != (strings.Contains(string(page), ">idle<") && strings.Contains(string(page), ">elsewhere<") && strings.Contains(string(page), "shop v1.2") && strings.Contains(string(page), "20")) ||
			keeps == strings.Contains(string(page), "keeps no heartbeats") {
			t.Errorf("heartbeats are kept: %v, and the page is %s", keeps, page)
		}
	})
}
