package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// The jobs of each state are listed page by page, each once and in their order, and none of another queue.
func TestJobsByState(t *testing.T) {
	for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
		t.Run(string(order), func(t *testing.T) {
			s, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Options{})
			must(t, err)
			must(t, s.Migrate(t.Context()))
			t.Cleanup(func() { s.Close() })
			must(t, s.CreateQueue(t.Context(), "mails", order))
			must(t, s.CreateQueue(t.Context(), "other", order))
			ctx, q := t.Context(), s.DriverQueue("mails")
			enqueue := func(jobs ...penstock.NewJob) (ids []string) {
				made, err := q.Enqueue(ctx, jobs...)
				must(t, err)
				for _, one := range made {
					ids = append(ids, fmt.Sprint(one.ID))
				}
				return ids
			}
			at := time.Now().Add(time.Hour)
			_, err = s.DriverQueue("other").Enqueue(ctx, penstock.NewJob{}, penstock.NewJob{NotBefore: at})
			must(t, err)

			run := enqueue(penstock.NewJob{Group: "r"}, penstock.NewJob{Group: "r"}, penstock.NewJob{Group: "r"}, penstock.NewJob{Group: "r"}, penstock.NewJob{Group: "r"}, penstock.NewJob{Group: "r", Key: "k"})
			claimed, err := q.Claim(ctx, driver.Claim{Group: "r", Jobs: 3, Lease: time.Hour, Worker: "w1"}) // one row of leases
			must(t, err)
			for range 3 {
				more, err := q.Claim(ctx, driver.Claim{Group: "r", Jobs: 1, Lease: time.Hour, Worker: "w1"})
				must(t, err)
				claimed = append(claimed, more...)
			}
			if len(claimed) != len(run) {
				t.Fatalf("%d jobs were claimed", len(claimed))
			}
			must(t, acked(q.Ack(ctx, claimed[1].Lease)))
			var running []string
			for i, job := range claimed {
				if i != 1 {
					running = append(running, fmt.Sprint(job.ID))
				}
			}
			waiting := enqueue(penstock.NewJob{Group: "r", Key: "k"}, penstock.NewJob{Group: "r", Key: "k"})
			if behind, err := q.Claim(ctx, driver.Claim{Group: "r", Jobs: 2, Lease: time.Hour}); err != nil || len(behind) > 0 { // which finds that they have to wait
				t.Fatalf("claimed %v, %v", behind, err)
			}
			late := enqueue(penstock.NewJob{NotBefore: at.Add(2 * time.Second)}, penstock.NewJob{NotBefore: at}, penstock.NewJob{NotBefore: at}, penstock.NewJob{NotBefore: at.Add(time.Second)})
			delayed := []string{late[1], late[2], late[3], late[0]}
			few := enqueue(penstock.NewJob{Priority: 1}, penstock.NewJob{Headers: map[string]string{"penstock-kind": "welcome"}}, penstock.NewJob{Priority: -1}, penstock.NewJob{})
			ready := []string{few[2], few[1], few[3], few[0]}
			if order == penstock.LIFO {
				ready = []string{few[2], few[3], few[1], few[0]}
			}
			enqueue(penstock.NewJob{Group: "another"})

			d := serve(t, s)
			for state, want := range map[string][]string{"running": running, "waiting": waiting, "delayed": delayed, "ready": ready} {
				for _, limit := range []int{1, 2, 3, 100} {
					var got []string
					for after := ""; ; {
						code, text := d.ask("r", "GET", fmt.Sprintf("/api/v1/queues/mails/jobs?state=%s&limit=%d&after=%s", state, limit, after), "")
						var l console.List[console.Life]
						must(t, json.Unmarshal(text, &l))
						if code != http.StatusOK || len(l.Items) > limit {
							t.Fatalf("%s: %d %s", state, code, text)
						}
						for _, one := range l.Items {
							got = append(got, one.ID)
							if one.Payload != nil || len(one.Where) != 1 || (state == "running") != (one.Where[0].Worker == "w1") {
								t.Errorf("%s: %+v", state, one)
							}
						}
						if after = l.After; after == "" {
							break
						}
					}
					if strings.Join(got, " ") != strings.Join(want, " ") {
						t.Errorf("%s, %d to a page: %v, want %v", state, limit, got, want)
					}
				}
				code, page := d.ask("o", "GET", "/queues/mails/jobs?state="+state, "")
				for _, id := range want {
					if code != http.StatusOK || !strings.Contains(string(page), `/queues/mails/jobs?id=`+id) {
						t.Errorf("the page of %s is %d, without job %s", state, code, id)
					}
				}
			}
			if _, page := d.ask("r", "GET", "/queues/mails/jobs?state=ready", ""); !strings.Contains(string(page), ">welcome<") || strings.Contains(string(page), "Cancel") {
				t.Errorf("the page of a reader: %s", page)
			}
			if code, page := d.ask("r", "GET", "/queues/mails/jobs?id="+few[1], ""); code != http.StatusOK || !strings.Contains(string(page), "kind <b>welcome</b> · ") {
				t.Errorf("the page of the job is %d, without its kind: %s", code, page)
			}
			for _, wrong := range []string{"state=asleep", "state=ready&id=1", "state=ready&older_than=x", "state=ready&younger_than=-1s", "state=ready&limit=0", "state=ready&limit=101", "state=running&after=x", "state=delayed&after=1.x"} {
				if code, text := d.ask("r", "GET", "/api/v1/queues/mails/jobs?"+wrong, ""); code != http.StatusBadRequest {
					t.Errorf("%s: %d %s", wrong, code, text)
				}
			}
			if code, _ := d.ask("r", "GET", "/api/v1/queues/none/jobs?state=ready", ""); code != http.StatusNotFound {
				t.Errorf("of no queue: %d", code)
			}

			for _, path := range []string{"jobs?id=" + running[0], "jobs?state=running"} {
				if _, page := d.ask("r", "GET", "/queues/mails/"+path, ""); !regexp.MustCompile(`(?i)runs for"?[ >]\d+\.\d s`).Match(page) {
					t.Errorf("%s does not say for how long it runs: %s", path, page)
				}
			}

			// The chosen ones are cancelled together.
			form := url.Values{"id": {ready[0], ready[2], delayed[0]}}.Encode()
			if code, text := d.ask("o", "POST", "/queues/mails/cancel?"+form, ""); code != http.StatusOK || !strings.Contains(string(text), "cancelled: 3") {
				t.Errorf("cancelling: %d %s", code, text)
			}
			status, err := s.QueueStatus(ctx, "mails")
			must(t, err)
			if status[0].Ready != 3 || status[0].Delayed != 3 {
				t.Errorf("then there are %+v", status[0])
			}
		})
	}
}

func acked(_ []int64, err error) error { return err }

// A job that failed and waits is tried again at once by an operator.
func TestTriedAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		d := serve(t, s)
		must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
		q := s.DriverQueue("mails")
		made, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("x")})
		must(t, err)
		jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Minute})
		must(t, err)
		if code, text := d.ask("r", "GET", "/api/v1/queues/mails/running", ""); !regexp.MustCompile(`"running_seconds": ?(0\.0*[1-9]|[1-9])`).Match(text) {
			t.Errorf("the running time: %d %s", code, text)
		}
		_, err = q.Retry(t.Context(), jobs[0].Lease, time.Hour, "mailbox full")
		must(t, err)
		_, finds := s.(interface {
			FindJobs(context.Context, admin.Find) ([]admin.Found, error)
		})
		code, page := d.ask("o", "GET", "/queues/mails/jobs?state=delayed", "")
		if code != http.StatusOK || !strings.Contains(string(page), "/queues/mails/retry") || !strings.Contains(string(page), "mailbox full") {
			t.Errorf("the page of delayed jobs is %d, without the job that failed or without a retry: %s", code, page)
		}
		if links := strings.Contains(string(page), "/queues/mails/jobs?id="); links != finds {
			t.Errorf("the store finds jobs: %t; the page links to one: %t", finds, links)
		}
		if code, page := d.ask("r", "GET", "/queues/mails", ""); code != http.StatusOK || !strings.Contains(string(page), "/queues/mails/jobs?state=delayed") {
			t.Errorf("the page of the queue is %d, without a link to delayed jobs", code)
		}
		form := url.Values{"id": {fmt.Sprint(made[0].ID)}}.Encode()
		if code, _ := d.ask("r", "POST", "/queues/mails/retry?"+form, ""); code != http.StatusForbidden {
			t.Errorf("a reader gets %d", code)
		}
		if code, text := d.ask("o", "POST", "/queues/mails/retry?"+form, ""); code != http.StatusOK || !strings.Contains(string(text), "to run now: 1") {
			t.Errorf("trying it again: %d %s", code, text)
		}
		if code, _ := d.ask("o", "POST", "/api/v1/queues/mails/retry", `{"ids": []}`); code != http.StatusBadRequest {
			t.Errorf("without ids: %d", code)
		}
		must(t, q.Maintain(t.Context()))
		jobs, err = q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Minute})
		must(t, err)
		if len(jobs) != 1 || jobs[0].Attempt != 2 {
			t.Errorf("it runs again as %+v", jobs)
		}
	})
}

// A job is enqueued again from its page, as another one: with its contents, and without its unique key.
func TestCopied(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		d := serve(t, s)
		must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
		q := s.DriverQueue("mails")
		made, err := q.Enqueue(t.Context(), penstock.NewJob{Kind: "welcome", UniqueKey: "u", Group: "g", Priority: 3, Headers: map[string]string{"a": "b"}, Payload: []byte{0, 255}})
		must(t, err)
		body := fmt.Sprintf(`{"copy_of": %d, "group": "g"}`, made[0].ID)
		finds, ok := s.(interface {
			FindJobs(context.Context, admin.Find) ([]admin.Found, error)
		})
		if !ok {
			if code, text := d.ask("o", "POST", "/api/v1/queues/mails/enqueue", body); code != http.StatusNotFound {
				t.Errorf("%d %s", code, text)
			}
			return
		}
		form := url.Values{"copy_of": {fmt.Sprint(made[0].ID)}, "group": {"g"}}.Encode()
		if _, page := d.ask("o", "GET", fmt.Sprintf("/queues/mails/jobs?id=%d&group=g", made[0].ID), ""); !strings.Contains(string(page), `name="copy_of"`) {
			t.Errorf("the page of the job offers no copy: %s", page)
		}
		if code, text := d.ask("o", "POST", "/queues/mails/enqueue?"+form, ""); code != http.StatusOK || !strings.Contains(string(text), "enqueued: job") {
			t.Errorf("by the form: %d %s", code, text)
		}
		for body, want := range map[string]int{body: http.StatusOK, `{"copy_of": 4711}`: http.StatusNotFound, `{"copy_of": 1, "payload": "x"}`: http.StatusBadRequest} {
			if code, text := d.ask("o", "POST", "/api/v1/queues/mails/enqueue", body); code != want {
				t.Errorf("%s: %d %s", body, code, text)
			}
		}
		found, err := finds.FindJobs(t.Context(), admin.Find{In: "mails", Key: "u", Limit: 9})
		must(t, err)
		unique := 0
		for _, f := range found {
			m := f.Message
			if m.Headers[penstock.HeaderUniqueKey] != "" {
				unique++
			}
			if f.Group != "g" || f.Priority != 3 || m.Headers[penstock.HeaderKind] != "welcome" || m.Headers["a"] != "b" || string(m.Payload) != "\x00\xff" {
				t.Errorf("a copy is %+v", f)
			}
		}
		if len(found) != 3 || unique != 1 {
			t.Errorf("there are %+v, want the unique job and two copies", found)
		}
	})
}

// A message that waits for barriers is listed with the jobs, but is not one: no copy of it is enqueued.
func TestMessagesThatWaitAreNotCopied(t *testing.T) {
	url := postgrestest.Database(t)
	s, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
	must(t, s.CreateOutbox(t.Context(), "orders"))
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	var id int64
	must(t, conn.QueryRow(t.Context(), "select penstock.publish_after('mails', array[penstock.barrier('mails')], 'orders', 'x')").Scan(&id))
	must(t, conn.Close(t.Context()))
	d := serve(t, s)
	if _, page := d.ask("o", "GET", fmt.Sprintf("/queues/mails/jobs?id=%d", id), ""); !strings.Contains(string(page), "publish to orders") || strings.Contains(string(page), `name="copy_of"`) {
		t.Errorf("the page of a message offers a copy: %s", page)
	}
	if code, text := d.ask("o", "POST", "/api/v1/queues/mails/enqueue", fmt.Sprintf(`{"copy_of": %d}`, id)); code != http.StatusBadRequest || !strings.Contains(string(text), "names a message that waits for barriers, not a job") {
		t.Errorf("a copy of a message: %d %s", code, text)
	}
}

// The lists of a queue's jobs lead to each other with their counts, and from each to one job by its id.
func TestTabsOfJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		d := serve(t, s)
		must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
		made, err := s.DriverQueue("mails").Enqueue(t.Context(), penstock.NewJob{Payload: []byte("hello")}, penstock.NewJob{NotBefore: time.Now().Add(time.Hour)}, penstock.NewJob{NotBefore: time.Now().Add(time.Hour)})
		must(t, err)
		for path, here := range map[string]string{"jobs?state=ready": "ready", "jobs?state=delayed": "delayed", "dead": "dead", "done": "done"} {
			code, page := d.ask("r", "GET", "/queues/mails/"+path, "")
			for _, want := range []string{`aria-current="page">` + here, `ready <span class="quiet">1</span>`, `delayed <span class="quiet">2</span>`, `dead <span class="quiet">0</span>`, `/queues/mails/done"`} {
				if code != http.StatusOK || !strings.Contains(string(page), want) {
					t.Errorf("%s: %d, without %s", path, code, want)
				}
			}
		}
		_, finds := s.(interface {
			FindJobs(context.Context, admin.Find) ([]admin.Found, error)
		})
		if _, page := d.ask("r", "GET", fmt.Sprintf("/queues/mails/jobs?state=delayed&key=&kind=&id=%d", made[0].ID), ""); finds != strings.Contains(string(page), "hello") {
			t.Errorf("by its id, from a list: %s", page)
		}
	})
}

// The count of ready jobs has those of groups too, and its list has those without one: each leads to the others.
func TestReadyJobsOfGroups(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		d := serve(t, s)
		must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
		_, err := s.DriverQueue("mails").Enqueue(t.Context(), penstock.NewJob{}, penstock.NewJob{Group: "a&b"}, penstock.NewJob{Group: "a&b"})
		must(t, err)
		for path, want := range map[string][]string{
			"/queues/mails":                              {`/queues/mails/jobs?state=ready">3</a>`, `/queues/mails/jobs?state=ready&amp;group=">1</a>`, `/queues/mails/jobs?state=ready&amp;group=a%26b">2</a>`},
			"/queues/mails/jobs?state=ready":             {`/queues/mails#groups">those of groups</a>`},
			"/queues/mails/jobs?state=ready&group=a%26b": {"Group a&amp;b: the next to run comes first"},
		} {
			_, page := d.ask("r", "GET", path, "")
			for _, text := range want {
				if !strings.Contains(string(page), text) {
					t.Errorf("%s lacks %s: %s", path, text, page)
				}
			}
		}
	})
}

// An operator publishes a message and enqueues a job by hand; a reader may not.
func TestByHand(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		d := serve(t, s)
		must(t, s.CreateOutbox(t.Context(), "orders"))
		must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
		for _, path := range []string{"/api/v1/queues/mails/enqueue", "/api/v1/outboxes/orders/publish"} {
			if code, _ := d.ask("r", "POST", path, `{"payload": "x"}`); code != http.StatusForbidden {
				t.Errorf("a reader gets %d from %s", code, path)
			}
		}
		for path, body := range map[string]string{"/api/v1/queues/mails/enqueue": `{"payload": "x", "topic": "t"}`, "/api/v1/outboxes/orders/publish": `{"payload": "x", "topic": "t", "delay_seconds": 1}`} {
			if code, text := d.ask("o", "POST", path, body); code != http.StatusBadRequest {
				t.Errorf("%s of %s: %d %s", path, body, code, text)
			}
		}
		if code, text := d.ask("o", "POST", "/api/v1/queues/mails/enqueue", `{"payload": "{}", "kind": "welcome", "key": "ann", "headers": {"a": "b"}}`); code != http.StatusOK || !strings.Contains(string(text), `"id"`) {
			t.Errorf("enqueueing: %d %s", code, text)
		}
		if code, text := d.ask("o", "POST", "/queues/mails/enqueue?payload=later&delay_seconds=60", ""); code != http.StatusOK || !strings.Contains(string(text), "enqueued: job") {
			t.Errorf("enqueueing by the form: %d %s", code, text)
		}
		if code, text := d.ask("o", "POST", "/api/v1/outboxes/orders/publish", `{"payload": "{}", "topic": "order.placed", "key": "ann"}`); code != http.StatusOK {
			t.Errorf("publishing: %d %s", code, text)
		}
		if code, text := d.ask("o", "POST", "/outboxes/orders/publish?topic=order.placed&payload=x", ""); code != http.StatusOK || !strings.Contains(string(text), "published") {
			t.Errorf("publishing by the form: %d %s", code, text)
		}
		jobs, err := s.DriverQueue("mails").Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Minute})
		must(t, err)
		if len(jobs) != 1 || jobs[0].Headers["penstock-kind"] != "welcome" || jobs[0].Headers["a"] != "b" || jobs[0].Key != "ann" || string(jobs[0].Payload) != "{}" {
			t.Errorf("the job is %+v", jobs)
		}
		must(t, s.DriverQueue("mails").DeadLetter(t.Context(), jobs[0].Lease, "no"))
		if code, page := d.ask("o", "GET", "/queues/mails/dead", ""); code != http.StatusOK || !strings.Contains(string(page), "kind welcome · ") {
			t.Errorf("the page of dead letters is %d, without the kind: %s", code, page)
		}
		source, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "relay-1"})
		must(t, err)
		for n := 0; n < 2; {
			batch, err := source.Fetch(t.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})
			must(t, err)
			n += len(batch.Messages)
		}
		must(t, source.Close(t.Context()))
	})
}
