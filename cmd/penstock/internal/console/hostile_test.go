package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	neturl "net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/store/postgres"
)

// A client that names none does not mean all, and a client that continues behind a number does not mean
// those before it.
func TestNoneIsNotAll(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		fill(t, s)
		d := serve(t, s)
		for _, one := range [][2]string{
			{"/queues/mails/dead/discard", `{"numbers": []}`}, {"/queues/mails/dead/retry", `{"numbers": []}`}, {"/queues/mails/dead/discard", `{"numbers": [7]} {}`},
			{"/outboxes/orders/subscriptions/billing/dead/discard", `{"numbers": []}`}, {"/outboxes/orders/subscriptions/billing/parked/retry", `{"keys": []}`},
			{"/queues/mails/dead/discard", `{}`}, {"/queues/mails/dead/retry", `{"after": 1}`}, {"/outboxes/orders/subscriptions/billing/replay", `{}`},
		} {
			if code, text := d.ask("o", "POST", "/api/v1"+one[0], one[1]); code != 400 || !strings.Contains(string(text), "hint") {
				t.Errorf("%s %s: %d %s", one[0], one[1], code, text)
			}
		}
		dead := func() []admin.DeadJob {
			found, err := s.DeadJobs(t.Context(), admin.DeadJobQuery{Queue: "mails", Limit: 100})
			must(t, err)
			return found
		}
		before := dead()
		if len(before) != 30 || firstDead(t, s) == 0 {
			t.Fatalf("%d of 30 dead letters are left", len(before))
		}
		if code, text := d.ask("o", "POST", "/api/v1/queues/mails/dead/discard", fmt.Sprintf(`{"all": true, "after": %d}`, before[9].Job.ID)); code != 200 {
			t.Errorf("%d %s", code, text)
		}
		if left := dead(); len(left) != 10 || left[9].Job.ID != before[9].Job.ID {
			t.Errorf("%d are left, want the first 10", len(left))
		}
	})
}

// An answer about something that is missing counts none, or is 404.
func TestMissing(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		fill(t, s)
		d := serve(t, s)
		_, finds := s.(interface {
			FindJobs(context.Context, admin.Find) ([]admin.Found, error)
		})
		const queue, subscription = "/queues/mails", "/outboxes/orders/subscriptions/billing"
		for _, one := range []struct{ method, path, body, want string }{
			{"POST", queue + "/dead/retry", `{"numbers": [4711]}`, `200 {"matched":0,"done":0`}, {"POST", queue + "/dead/discard", `{"numbers": [4711]}`, `200 {"matched":0,"done":0`},
			{"POST", subscription + "/dead/retry", `{"numbers": [4711]}`, `200 {"matched":0,"done":0`}, {"POST", queue + "/dead/resend", `{"numbers": [4711]}`, "404"},
			{"POST", queue + "/cancel", `{"ids": [4711]}`, `200 {"done":0}`}, {"POST", queue + "/cancel", `{"ids": []}`, "400"}, {"POST", queue + "/retry", `{"ids": [4711]}`, `200 {"done":0}`},
			{"POST", queue + "/schedules/run", `{"name": "x"}`, "404"}, {"POST", subscription + "/parked/retry", `{"keys": ["x"]}`, `200 {"done":0}`},
			{"POST", subscription + "/parked/give-up", `{"number": 4711}`, `200 {"done":0}`}, {"POST", "/queues/none/cancel", `{"ids": [4711]}`, "404"},
			{"GET", "/queues/none/running", "", "404"}, {"GET", "/queues/none/jobs?id=1", "", "404"},
			{"GET", queue + "/jobs?id=4711", "", map[bool]string{true: `200 {"items":[]}`, false: `404 {"error":"of this database Penstock finds nothing by an id or a key`}[finds]},
		} {
			code, text := d.ask("o", one.method, "/api/v1"+one.path, one.body)
			if got := fmt.Sprintf("%d %s", code, text); !strings.HasPrefix(got, one.want) {
				t.Errorf("%s %s %s: %s, want %s", one.method, one.path, one.body, got, one.want)
			}
		}
	})
}

// A value that cannot be a text is the client's mistake.
func TestWhatIsNoText(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		fill(t, s)
		d := serve(t, s)
		for _, bad := range []string{"%00", "%ff", "%ed%a0%80"} {
			for _, path := range []string{"/queues/mails/dead?key=", "/queues/mails/dead?error=", "/queues/mails/dead/causes?group=", "/queues/mails/groups?after=", "/queues/mails/jobs?key=", "/queues/mails/done?after=",
				"/outboxes/orders/messages?id=", "/outboxes/orders/messages?key=", "/outboxes/orders/subscriptions/billing/dead?topic=", "/queues/mails/dead/retry?key=", "/queues/X/dead?x=", "/queues/X/done?x=", "/outboxes/X/messages?id=1&x=", "/outboxes/orders/subscriptions/X/dead?x="} {
				for _, of := range []string{"/api/v1", ""} {
					path := of + strings.Replace(path, "X", bad, 1) + bad
					if code, text := d.ask("r", "GET", path, ""); code >= 500 {
						t.Errorf("%s: %d %.300s", path, code, text)
					}
				}
			}
		}
		for _, path := range []string{"/queues/mails/dead/retry", "/queues/mails/dead/discard", "/outboxes/orders/subscriptions/billing/dead/discard"} {
			if code, text := d.ask("o", "POST", "/api/v1"+path, `{"error": "\u0000"}`); code >= 500 {
				t.Errorf("%s: %d %s", path, code, text)
			}
		}
		if log := d.log.String(); strings.Contains(log, "cannot read") {
			t.Errorf("the log has %s", log)
		}
	})
}

// A sub-path is never left: paths outside belong to other programs behind the same proxy.
func TestTheSubPathIsNotLeft(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		d := serve(t, s)
		stay := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		for path, want := range map[string]string{"": "/ops/", "//": "/ops/", "//api/v1/status": "/ops/api/v1/status", "/queues//mails": "/ops/queues/mails", "/./outboxes/x": "/ops/outboxes/x", "/queues/../outboxes/x": "/ops/outboxes/x"} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", d.url+path, nil)
			must(t, err)
			r.Header.Set("Authorization", "Bearer r")
			answer, err := stay.Do(r)
			must(t, err)
			_ = answer.Body.Close()
			if got := answer.Header.Get("Location"); answer.StatusCode/100 != 3 || got != want {
				t.Errorf("%q leads to %d %q, want %q", path, answer.StatusCode, got, want)
			}
		}
	})
}

// Hidden values are not shown in any form. An answer or a page may be wrong, but must not reveal them.
func TestRedactedInAnyForm(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		ctx, q := t.Context(), s.DriverQueue("mails")
		must(t, s.CreateQueue(ctx, "mails", penstock.FIFO))
		const secret = "hunter2"
		for _, text := range []string{`{"a": [{"PassWord": "hunter2"}]}`, `{"password":"hunter2"} {"password":"hunter2"}`, `{"password":"hunter2"}]`, "password=hunter2&a=b", "{\"password\":\"hunter2\",\"a\":\"\xff\"}",
			"\ufeff{\"password\":\"hunter2\"}", `{"password":"hunter2"`, `"{\"password\":\"hunter2\"}"`, `{"body":"{\"a\":[{\"pass\\u0077ord\":\"hunter2\"}]}"}`, `{"body":["login password=hunter2"]}`,
			`{"pass\u0077ord":"hunter2"} {}`, `{"body":"\"{\\\"password\\\":\\\"hunter2\\\"}\""}`, strings.Repeat("[", 20_000) + `{"password":"hunter2"}`} {
			_, err := q.Enqueue(ctx, penstock.NewJob{Payload: []byte(text), Headers: map[string]string{"Password": secret}})
			must(t, err)
			jobs, err := q.Claim(ctx, driver.Claim{Jobs: 1, Lease: time.Minute, Worker: "w"})
			must(t, err)
			must(t, q.DeadLetter(ctx, jobs[0].Lease, "no"))
		}
		if _, keeps := s.(driver.HistoryStore); keeps {
			day := 24 * time.Hour
			must(t, s.SetQueue(ctx, "mails", penstock.QueueSettings{KeepDone: &day}))
			_, err := q.Enqueue(ctx, penstock.NewJob{}, penstock.NewJob{})
			must(t, err)
			jobs, err := q.Claim(ctx, driver.Claim{Jobs: 2, Lease: time.Hour, Worker: "w"})
			must(t, err)
			for _, j := range jobs {
				must(t, q.(driver.Reporter).Report(ctx, j.Lease, []byte(`{"password": "hunter2", "mails": 17}`)))
			}
			_, err = q.Ack(ctx, jobs[0].Lease)
			must(t, err)
		}
		d := serve(t, s)
		for _, path := range []string{"/queues/mails/dead", "/queues/mails/done", "/queues/mails/running", "/queues/mails/jobs?id=1", "/queues/mails"} {
			for _, of := range []string{"/api/v1", ""} {
				_, text := d.ask("r", "GET", of+path, "")
				var l console.List[console.DeadLetter]
				if _ = json.Unmarshal(text, &l); len(l.Items) > 0 {
					for _, one := range l.Items {
						text = append(text, one.PayloadBase64...)
					}
				}
				if strings.Contains(string(text), secret) {
					t.Errorf("%s%s tells: %.2000s", of, path, text)
				}
			}
		}
	})
}

// Only a part of a large request is logged, to keep the audit readable.
func TestTheAuditIsBounded(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		fill(t, s)
		d := serve(t, s)
		ids := strings.Repeat("4711,", 50_000) + "4712"
		if code, text := d.ask("o", "POST", "/api/v1/queues/mails/cancel", `{"ids":[`+ids+`]}`); code != 200 {
			t.Fatalf("%d %s", code, text)
		}
		if log := d.log.String(); len(log) > 10<<10 || !strings.Contains(log, "did cancel") || !strings.Contains(log, "4711,4711") || !strings.Contains(log, `{\"done\":0}`) {
			t.Errorf("%d bytes of log: %.300s", len(log), log)
		}
	})
}

// A role that may not read something sees that, and not an empty list.
func TestARoleThatMayNotRead(t *testing.T) {
	url := postgrestest.Database(t)
	owner, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	must(t, owner.Migrate(t.Context()))
	t.Cleanup(func() { owner.Close() })
	fill(t, owner)
	role := fmt.Sprintf("nobody_%d", time.Now().UnixNano()) // roles are those of the server
	db := postgrestest.On(t, url)
	db.Exec("create role " + role + " login")
	t.Cleanup(func() { db.Exec("drop role " + role) })
	at, err := neturl.Parse(url)
	must(t, err)
	at.User = neturl.User(role)
	s, err := postgres.Open(t.Context(), at.String(), postgres.Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	d := serve(t, s)
	for _, path := range []string{"/queues/mails", "/queues/mails/dead", "/queues/mails/done", "/outboxes/orders", "/outboxes/orders/subscriptions/billing/dead", "/inboxes/billing",
		"/api/v1/queues/mails/dead", "/api/v1/queues/mails/running", "/api/v1/queues/mails/done", "/api/v1/outboxes/orders/messages?id=1"} {
		code, text := d.ask("r", "GET", path, "")
		if said := string(text); code != 403 || !strings.Contains(said, "permission denied") && !strings.Contains(said, "may not read") {
			t.Errorf("%s: %d %.600s", path, code, text)
		}
	}
	if _, text := d.ask("r", "GET", "/", ""); strings.Contains(string(text), "<p>Nothing.</p>") || strings.Contains(string(text), "<p>None.</p>") ||
		!strings.Contains(string(text), "penstock queue grant QUEUE ROLE --operate") || strings.Count(string(text), "The role of this console may not read them: the owner of the schema can grant it: ") < 2 {
		t.Errorf("the overview: %s", text)
	}
	if code, text := d.ask("o", "POST", "/api/v1/queues/mails/settings", `{"paused": true}`); code != 403 {
		t.Errorf("%d %s", code, text)
	}
	// An operator's role may read no schedules and leases. It sees the rest of its queue.
	must(t, owner.GrantOperator(t.Context(), "mails", role))
	t.Cleanup(func() { db.Exec("drop owned by " + role) })
	for _, path := range []string{"/api/v1/queues/mails/schedules", "/api/v1/queues/mails/running"} {
		if code, text := d.ask("r", "GET", path, ""); code != 403 {
			t.Errorf("%s for an operator: %d %s", path, code, text)
		}
	}
	d = serve(t, s) // the other has answers from before
	if code, text := d.ask("r", "GET", "/queues/mails", ""); code != 200 || strings.Count(string(text), "The role of this console may not read them") != 2 || strings.Contains(string(text), "<p>None.</p>") {
		t.Errorf("the page of an operator: %d %s", code, text)
	}
}

// Large payloads are read a few at a time, and each page continues where the one before ended.
func TestLargeDeadLettersInPages(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		ctx, q := t.Context(), s.DriverQueue("mails")
		must(t, s.CreateQueue(ctx, "mails", penstock.FIFO))
		large := bytes.Repeat([]byte("x"), 3<<20)
		const n = 7
		for i := range n {
			_, err := q.Enqueue(ctx, penstock.NewJob{Key: fmt.Sprint(i), Payload: large})
			must(t, err)
		}
		jobs, err := q.Claim(ctx, driver.Claim{Jobs: n, Lease: time.Minute, Worker: "w"})
		must(t, err)
		for _, j := range jobs {
			must(t, q.DeadLetter(ctx, j.Lease, "refused"))
		}
		d := serve(t, s)
		for _, filter := range []string{"", "&error=refused"} {
			var seen []string
			for after := ""; ; {
				code, text := d.ask("r", "GET", "/api/v1/queues/mails/dead?limit=100"+filter+after, "")
				var page console.List[console.DeadLetter]
				must(t, json.Unmarshal(text, &page))
				if code == 503 { // a busy machine did not read the page in time: ask again
					continue
				}
				if code != 200 || len(page.Items) > 3 {
					t.Fatalf("%d, with %d of 3 MiB each", code, len(page.Items))
				}
				for _, one := range page.Items {
					seen = append(seen, one.Key)
				}
				if page.After == "" {
					break
				}
				after = "&after=" + page.After
			}
			if got := strings.Join(seen, ""); got != "0123456" {
				t.Errorf("with %q the pages have %s", filter, got)
			}
		}
	})
}

// If the database is away, the answer is 503 until it is back.
func TestADatabaseThatIsAway(t *testing.T) {
	url := postgrestest.Database(t)
	at, err := neturl.Parse(url)
	must(t, err)
	proxy := tcpproxy.New(t, at.Host)
	at.Host = proxy.Addr()
	s, err := postgres.Open(t.Context(), at.String(), postgres.Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	must(t, s.Migrate(t.Context()))
	fill(t, s)
	d := serve(t, s)
	becomes := func(want int) {
		t.Helper()
		for _, path := range []string{"/api/v1/queues/mails/dead", "/queues/mails/dead", "/api/v1/outboxes/orders/messages?id=1"} {
			for end := time.Now().Add(time.Minute); ; {
				code, text := d.ask("r", "GET", path, "")
				if code == want {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%s: %d %.300s, want %d", path, code, text, want)
				}
			}
		}
	}
	becomes(200)
	proxy.Refuse()
	becomes(503)
	proxy.Resume()
	becomes(200)
}
