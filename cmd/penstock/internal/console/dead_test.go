package console_test

import (
	"bytes"
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

// deadJobs creates n dead letters. Two of every three could not reach a host, a different one
// each.
func deadJobs(t *testing.T, s store, n int) {
	ctx, q := t.Context(), s.DriverQueue("mails")
	jobs := make([]penstock.NewJob, n)
	for i := range jobs {
		jobs[i] = penstock.NewJob{Group: fmt.Sprint(i % 2), Headers: map[string]string{"Password": "x"}, Payload: fmt.Appendf(nil, `{"to":"%d@example.com"}`, i)}
	}
	_, err := q.Enqueue(ctx, jobs...)
	must(t, err)
	for done := 0; done < n; {
		for _, group := range []string{"0", "1"} {
			claimed, err := q.Claim(ctx, driver.Claim{Group: group, Jobs: n, Lease: time.Minute, Worker: "w"})
			must(t, err)
			for _, j := range claimed {
				reason := "550 no such mailbox"
				if j.ID%3 != 0 {
					reason = fmt.Sprintf("dial 10.0.0.%d: refused", j.ID)
				}
				must(t, q.DeadLetter(ctx, j.Lease, reason))
				done++
			}
		}
	}
}

func TestDeadLettersByCauseAndAllThatMatch(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		fill(t, s)
		d := serve(t, s)
		var causes console.Causes
		_, text := d.ask("r", "GET", "/api/v1/queues/mails/dead/causes", "")
		must(t, json.Unmarshal(text, &causes))
		if len(causes.Causes) != 2 || causes.Causes[0].Letters != 20 || causes.Causes[0].Cause != "dial …: refused" || causes.Causes[1].Letters != 10 || causes.More {
			t.Fatalf("the causes are %s", text)
		}
		var page console.List[console.DeadLetter]
		seen := map[int64]bool{}
		for after := ""; ; after = "&after=" + page.After {
			page = console.List[console.DeadLetter]{}
			_, text := d.ask("r", "GET", "/api/v1/queues/mails/dead?limit=7&error=refused"+after, "")
			must(t, json.Unmarshal(text, &page))
			for _, one := range page.Items {
				seen[one.Number] = true
				if one.Headers["Password"] != "[redacted]" || one.Payload == nil || !strings.Contains(*one.Payload, "example.com") {
					t.Fatalf("a dead letter is shown as %+v", one)
				}
			}
			if page.After == "" {
				break
			}
		}
		if len(seen) != 20 {
			t.Errorf("the pages have %d dead letters, want 20", len(seen))
		}
		var done console.Done
		act := func(what, body string, want console.Done) {
			t.Helper()
			code, text := d.ask("o", "POST", "/api/v1/queues/mails/dead/"+what, body)
			done = console.Done{}
			must(t, json.Unmarshal(text, &done))
			if code != 200 || done != want {
				t.Errorf("%s %s: %d %s, want %+v", what, body, code, text, want)
			}
		}
		act("discard", `{"error": "no such mailbox", "dry_run": true}`, console.Done{Matched: 10, Looked: 30, DryRun: true})
		act("discard", `{"error": "no such mailbox"}`, console.Done{Matched: 10, Done: 10, Looked: 30})
		act("retry", `{"group": "1"}`, console.Done{Matched: 10, Done: 10, Looked: 20})
		act("retry", `{"error": "no such mailbox"}`, console.Done{Looked: 10})
		if log := d.log.String(); strings.Count(log, "console: did discard") != 2 || !strings.Contains(log, "role=operate") || !strings.Contains(log, "/queues/mails/dead/retry") {
			t.Errorf("the log has %s", log)
		}
		_, text = d.ask("r", "GET", "/api/v1/outboxes/orders/subscriptions/billing/dead", "")
		if strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), `\"total\":10`) {
			t.Errorf("the message that died is shown as %s", text)
		}
	})
}

// firstDead is the seq of the message that died.
func firstDead(t *testing.T, s store) int64 {
	t.Helper()
	letters, err := s.DeadLetters(t.Context(), admin.DeadLetterQuery{Outbox: "orders", Subscription: "billing", Limit: 1})
	must(t, err)
	return letters[0].Message.Seq
}

// A resent message has the contents of the dead letter, including hidden ones, and a new id.
func TestDeadLettersAreSentAgainAsNew(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		fill(t, s)
		d := serve(t, s)
		const ofMessages = "/outboxes/orders/subscriptions/billing"
		resend := func(of, body string, want int) (r console.Resent) {
			t.Helper()
			code, text := d.ask("o", "POST", "/api/v1"+of+"/dead/resend", body)
			if err := json.Unmarshal(text, &r); code != want || err != nil {
				t.Fatalf("%s: %d %s", body, code, text)
			}
			return r
		}
		dead, err := s.DeadJobs(t.Context(), admin.DeadJobQuery{Queue: "mails", Limit: 2})
		must(t, err)
		for i, discard := range []bool{false, true} {
			was := dead[i].Job
			r := resend("/queues/mails", fmt.Sprintf(`{"numbers": [%d], "discard": %v}`, was.ID, discard), 200)
			left, err := s.DeadJobs(t.Context(), admin.DeadJobQuery{Queue: "mails", IDs: []int64{was.ID}, Limit: 1})
			must(t, err)
			if len(left) == 0 != discard || r.Discarded != int64(1-len(left)) || len(r.IDs) != 1 {
				t.Errorf("discard %v: %+v, and %d are left", discard, r, len(left))
			}
			var again []penstock.Job
			for len(again) == 0 {
				again, err = s.DriverQueue("mails").Claim(t.Context(), driver.Claim{Group: was.Group, Jobs: 1, Lease: time.Minute})
				must(t, err)
			}
			if j := again[0]; fmt.Sprint(j.ID) != r.IDs[0] || j.ID == was.ID || !bytes.Equal(j.Payload, was.Payload) || j.Headers["Password"] != "x" || j.Attempt != 1 {
				t.Errorf("%+v runs again as %+v, answered was %v", was, j, r.IDs)
			}
		}
		seq := firstDead(t, s)
		r := resend(ofMessages, fmt.Sprintf(`{"numbers": [%d, %d], "discard": true}`, seq, seq), 200)
		source, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "relay-2"})
		must(t, err)
		var again []penstock.Message
		for len(again) == 0 {
			batch, err := source.Fetch(t.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})
			must(t, err)
			again = batch.Messages
		}
		must(t, source.Close(t.Context()))
		if m := again[0]; len(again) != 1 || len(r.IDs) != 1 || m.ID != r.IDs[0] || m.Key != "ann" || m.Topic != "order.placed" || !strings.Contains(string(m.Payload), "hunter2") || r.Discarded != 1 {
			t.Errorf("the message comes again as %+v, answered was %+v", again, r)
		}
		resend(ofMessages, fmt.Sprintf(`{"numbers": [%d]}`, seq), 404)
		resend("/queues/mails", `{"numbers": []}`, 400)
		resend("/queues/mails", `{"numbers": [`+strings.Repeat("1,", 100)+`1]}`, 400)
		if log := d.log.String(); strings.Count(log, "console: did resend") < 3 || !strings.Contains(log, r.IDs[0]) {
			t.Errorf("the log has %s", log)
		}
	})
}
