package console_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/postgres"
)

// A job that is ready explains why it does not start.
func TestJobsSayWhyTheyWait(t *testing.T) {
	s, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	ctx, q := t.Context(), s.Queue("mails")
	must(t, s.CreateQueue(ctx, "mails", penstock.FIFO))
	groups := []string{"", "\x01", "free", "free2", "held", "full", "fast", "busy", "é"}
	ids := map[string]int64{}
	for _, group := range groups {
		made, err := q.Enqueue(ctx, penstock.NewJob{Group: group, Key: "k" + group}, penstock.NewJob{Group: group, Key: "k" + group}, penstock.NewJob{Group: group})
		must(t, err)
		ids[group] = made[2].ID
		if group == "free2" {
			ids["key"], ids["running"] = made[1].ID, made[0].ID
		}
		if group == "busy" {
			ids["behind"] = made[1].ID
		}
	}
	must(t, s.SetGroup(ctx, "mails", penstock.GroupPolicy{Group: "full", MaxRunning: 1}))
	must(t, s.SetGroup(ctx, "mails", penstock.GroupPolicy{Group: "fast", Rate: penstock.Rate{Jobs: 1, Per: time.Hour}}))
	must(t, s.HoldGroup(ctx, "mails", "held", time.Hour, "answered 429"))
	for _, group := range []string{"free2", "full", "fast", "busy", "busy"} {
		jobs, err := q.Claim(ctx, driver.Claim{Group: group, Jobs: 1, Lease: time.Hour, Worker: "w"})
		must(t, err)
		if len(jobs) != 1 {
			t.Fatalf("%d jobs of %q", len(jobs), group)
		}
	}
	check := func(want, links map[string]string) {
		t.Helper()
		d := serve(t, s)
		for name, why := range want {
			group := name
			switch name {
			case "key":
				group = "free2"
			case "behind":
				group = "busy"
			}
			query := "/queues/mails/jobs?" + url.Values{"id": {fmt.Sprint(ids[name])}, "group": {group}}.Encode()
			code, text := d.ask("r", "GET", "/api/v1"+query, "")
			var found console.List[console.Life]
			must(t, json.Unmarshal(text, &found))
			if code != 200 || len(found.Items) != 1 || found.Items[0].Where[0].WaitsFor != why {
				t.Errorf("%q waits for %q: %d %s", name, why, code, text)
			}
			_, page := d.ask("r", "GET", query, "")
			if says := strings.Contains(string(page), `Waits for: <span class="waits">`+why+`</span>`); says != (why != "") {
				t.Errorf("the page of %q, which waits for %q: %s", name, why, page)
			}
			link := links[name]
			if why != "" && link == "" {
				t.Errorf("%q waits for %q, and no link is expected", name, why)
			}
			if !strings.Contains(string(page), link) {
				t.Errorf("the page of %q lacks %s: %s", name, link, page)
			}
			if _, where, _ := strings.Cut(link, `href="`); where != "" {
				where, _, _ = strings.Cut(where, `"`)
				if code, _ := d.ask("r", "GET", strings.TrimPrefix(html.UnescapeString(where), "/ops"), ""); code != 200 {
					t.Errorf("%s leads to %d", link, code)
				}
			}
		}
	}
	check(map[string]string{"": "", "\x01": "", "free": "", "free2": "", "é": "", "held": "hold", "full": "limit", "fast": "rate", "key": "key", "behind": "key"}, map[string]string{
		"held":   `<a href="/ops/queues/mails?after=hel`,
		"full":   `<a href="/ops/queues/mails/jobs?group=full&amp;state=running">the group is at its limit of 1 running job</a>.`,
		"fast":   `<a href="/ops/queues/mails?after=fas`,
		"key":    fmt.Sprintf(`<a href="/ops/queues/mails/jobs?id=%d">job %[1]d of its key, which is running</a>.`, ids["running"]),
		"behind": `<a href="/ops/queues/mails/jobs?key=kbusy">an earlier job of its key</a>.`})
	must(t, s.SetQueue(ctx, "mails", penstock.QueueSettings{MaxRunning: new(3)}))
	check(map[string]string{"free": "limit", "held": "limit"}, map[string]string{
		"free": `<a href="/ops/queues/mails/jobs?state=running">the queue is at its limit of 3 running jobs</a>.`,
		"held": `<a href="/ops/queues/mails/jobs?state=running">the queue is at its limit of 3 running jobs</a>.`})
	must(t, s.SetQueue(ctx, "mails", penstock.QueueSettings{MaxRunning: new(int), Rate: &penstock.Rate{Jobs: 1, Per: time.Hour}}))
	if _, err := q.Claim(ctx, driver.Claim{Group: "free", Jobs: 1, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	check(map[string]string{"": "rate"}, map[string]string{"": `<a href="/ops/queues/mails">the queue is over its rate of 1 in 1h0m0s</a>.`})
	must(t, s.SetQueue(ctx, "mails", penstock.QueueSettings{Paused: new(true)}))
	check(map[string]string{"free2": "pause"}, map[string]string{"free2": `<a href="/ops/queues/mails">the queue is paused</a>.`})
}

// A message is found by its id or key in every state, and so is a job, with its history.
func TestFind(t *testing.T) {
	s, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	fill(t, s) // ann is dead, bob parked
	ctx, q := t.Context(), s.Queue("mails")
	publish := func(m penstock.Message) { must(t, s.Publish(ctx, "orders", m)) }
	publish(penstock.Message{Key: "cid", Topic: "t", Payload: []byte("delivered")})
	source, err := s.Subscribe(ctx, driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "relay-1"})
	must(t, err)
	for settled := 0; settled < 1; {
		batch, err := source.Fetch(ctx, driver.Limit{Messages: 10, Bytes: 1 << 20})
		must(t, err)
		must(t, storetest.Settle(ctx, source, driver.Settled{Batch: batch, Verdicts: make([]driver.Verdict, len(batch.Messages))}))
		settled += len(batch.Messages)
	}
	publish(penstock.Message{Key: "bob", Topic: "t", Payload: []byte("behind the parked one")})
	publish(penstock.Message{ID: "given-1", Key: "dan", Topic: "t", Payload: []byte("waits")})
	must(t, source.Close(ctx))
	jobs, err := q.Enqueue(ctx, penstock.NewJob{Group: "h", Key: "k", Payload: []byte("first")}, penstock.NewJob{Group: "h", Key: "k", Payload: []byte("second")},
		penstock.NewJob{Key: "later", NotBefore: time.Now().Add(time.Hour), Payload: []byte("x")}, penstock.NewJob{Payload: []byte("x")})
	must(t, err)
	claimed, err := q.Claim(ctx, driver.Claim{Group: "h", Jobs: 1, Lease: time.Minute, Worker: "w7"})
	must(t, err)
	d := serve(t, s)
	find := func(path, query string) []console.Life {
		t.Helper()
		code, text := d.ask("r", "GET", "/api/v1"+path+"?"+query, "")
		var found console.List[console.Life]
		must(t, json.Unmarshal(text, &found))
		if code != 200 {
			t.Errorf("%s?%s: %d %s", path, query, code, text)
		}
		return found.Items
	}
	states := func(found []console.Life) string {
		var all []string
		for _, one := range found {
			for _, w := range one.Where {
				all = append(all, fmt.Sprint(w.Subscription, w.State, w.Attempts, len(w.Failures), w.Worker))
			}
		}
		return strings.Join(all, " ")
	}
	const messages, ofJobs = "/outboxes/orders/messages", "/queues/mails/jobs"
	for query, want := range map[string]string{"key=ann": "billingdead1 1", "key=bob": "billingwaiting0 0  billingparked1 1", "key=cid": "billingsettled0 0", "id=given-1": "billingwaiting0 0", "key=nobody": "", "id=none": ""} {
		found := find(messages, query)
		if got := states(found); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("messages of %s are %q, want %q", query, got, want)
		}
		for _, one := range found { // by its id it is the same
			if again := find(messages, "id="+url.QueryEscape(one.ID)); len(again) != 1 || states(again) != states([]console.Life{one}) {
				t.Errorf("%s has the id %s, by which %q are found", query, one.ID, states(again))
			}
		}
	}
	if payload := find(messages, "key=ann")[0].Payload; payload == nil || strings.Contains(*payload, "hunter2") {
		t.Errorf("the payload is shown as %v", payload)
	}
	for query, want := range map[string]string{
		"key=k": "ready0 0 running1 0w7", "key=later": "delayed0 0", fmt.Sprint("id=", jobs[3].ID): "ready0 0", fmt.Sprint("id=", claimed[0].ID): "running1 0w7",
		fmt.Sprint("id=", jobs[1].ID): "", fmt.Sprint("group=h&id=", jobs[1].ID): "ready0 0", "id=3": "dead1 1",
	} {
		if got := states(find(ofJobs, query)); strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("jobs of %s are %q, want %q", query, got, want)
		}
	}
	for _, path := range []string{messages, ofJobs, ofJobs + "?id=x", messages + "?id=1&key=2"} {
		if code, text := d.ask("r", "GET", "/api/v1"+path, ""); code != 400 {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	for path, want := range map[string]string{messages + "?key=cid": "delivered and confirmed, or passed over", messages + "?key=ann": "no route for 17", ofJobs + "?key=k": "by w7", messages + "?key=nobody": "There is none", "/outboxes/orders": `name="key"`} {
		if code, text := d.ask("r", "GET", path, ""); code != 200 || !strings.Contains(string(text), want) {
			t.Errorf("the page %s is %d without %q: %s", path, code, want, text)
		}
	}
}

// A job that waits for barriers leads to the dead letters that keep one closed.
func TestAJobBehindABarrierLeadsToItsDeadLetters(t *testing.T) {
	s, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	ctx, q := t.Context(), s.Queue("mails")
	must(t, s.CreateQueue(ctx, "mails", penstock.FIFO))
	b, err := q.Barrier(ctx)
	must(t, err)
	made, err := q.Enqueue(ctx, penstock.NewJob{Holds: b}, penstock.NewJob{Holds: b}, penstock.NewJob{WaitsFor: []int64{b}})
	must(t, err)
	must(t, q.Seal(ctx, b))
	const link = `: <a href="/ops/queues/mails/dead">the dead letters of the queue</a>.`
	page := func() string {
		_, page := serve(t, s).ask("r", "GET", fmt.Sprintf("/queues/mails/jobs?id=%d", made[2].ID), "") // another console, which has not kept the answer
		return string(page)
	}
	if page := page(); !strings.Contains(page, "2 not ended</span>.") {
		t.Errorf("before there is one: %s", page)
	}
	jobs, err := q.Claim(ctx, driver.Claim{Jobs: 1, Lease: time.Hour})
	must(t, err)
	must(t, q.DeadLetter(ctx, jobs[0].Lease, "no such user"))
	must(t, q.Maintain(ctx))
	if page := page(); !strings.Contains(page, "1 not ended, 1 dead</span>"+link) {
		t.Errorf("afterwards: %s", page)
	}
}
