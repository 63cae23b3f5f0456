package console_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/web"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
)

// axe is axe-core, from its npm package.
func axe(t *testing.T) string {
	file, err := os.Open("testdata/axe-core/axe.min.js.gz")
	must(t, err)
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	must(t, err)
	text, err := io.ReadAll(unpacked)
	must(t, err)
	return string(text)
}

// The actions of a person in a browser: watching a workload, filtering, retrying and discarding.
func TestInABrowser(t *testing.T) {
	b := startBrowser(t)
	url := postgrestest.Database(t)
	s, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	fill(t, s)
	sampleHours(t, url)
	waits := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "waits", Help: "h"}, []string{"outbox", "subscription"})
	d := serveWith(t, s, func(o *console.Options) {
		o.Waits, o.WaitsEvery = waits, 100*time.Millisecond
		o.Adopted = []console.Adopted{{Table: "orders", Subscription: "billing", Store: asTable{s}}}
	})
	check := axe(t)
	shots, looked := os.Getenv("PENSTOCK_SCREENSHOTS"), map[string]bool{}
	look := func(name, path string) {
		t.Helper()
		b.Open(d.url + path)
		b.Eval(check+"; 0", nil)
		looked[name] = true
		for _, screen := range []struct {
			width, height int
			scheme        string
		}{{1280, 800, "light"}, {1280, 800, "dark"}, {360, 800, "light"}, {360, 800, "dark"}} {
			b.Screen(screen.width, screen.height, screen.scheme)
			if shots != "" {
				must(t, os.WriteFile(filepath.Join(shots, fmt.Sprintf("%s-%d-%s.png", name, screen.width, screen.scheme)), b.Screenshot(), 0o644))
			}
			var wider bool
			if b.Eval("document.documentElement.scrollWidth > innerWidth", &wider); wider {
				t.Errorf("%s is wider than a screen of %d", name, screen.width)
			}
			var wrong []string
			b.Eval("axe.run({resultTypes: ['violations']}).then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | ')))", &wrong)
			if len(wrong) > 0 {
				t.Errorf("%s, %d %s: axe finds\n%s", name, screen.width, screen.scheme, strings.Join(wrong, "\n"))
			}
		}
		b.Screen(1280, 800, "light")
	}
	text := func(selector string) string {
		t.Helper()
		var found string
		b.Eval(fmt.Sprintf("document.querySelector(%q).innerText.trim()", selector), &found)
		return found
	}
	click := func(selector, until string) {
		t.Helper()
		b.Click(selector)
		b.Await(until + " && document.readyState === 'complete'")
	}

	b.Headers(map[string]string{"Authorization": "Bearer o"})
	b.Open(d.url + "/")
	b.Await("document.body.innerText.includes('nobody relays it')")
	dead, err := s.DeadJobs(t.Context(), admin.DeadJobQuery{Queue: "mails", Limit: 1})
	must(t, err)
	job := fmt.Sprintf("/queues/mails/jobs?id=%d", dead[0].Job.ID)
	for name, path := range map[string]string{"overview": "/", "outbox": "/outboxes/orders", "queue": "/queues/mails", "inbox": "/inboxes/billing", "dead": "/queues/mails/dead",
		"messages": "/outboxes/orders/subscriptions/billing/dead", "confirm": "/queues/mails/dead/discard?error=mailbox", "workers": "/workers", "done": "/queues/mails/done",
		"filtered": "/queues/mails/jobs?state=delayed&kind=welcome&older_than=1m&newest=1", "find": "/outboxes/orders/messages?key=bob", "job": job,
		"jobs": "/queues/mails/jobs?state=ready&group=g", "running": "/queues/mails/jobs?state=running", "table": "/tables/orders/billing", "missing": "/queues/none"} {
		look(name, path)
	}
	b.Open(d.url + "/")
	b.Await("document.querySelector('#looked')?.innerText.startsWith('as of ')")
	if got := text("#dead-mails"); got != "30" {
		t.Errorf("the overview says that %s jobs are dead", got)
	}
	// The page follows a workload without reloads.
	for done := 0; done < 200; done += 10 {
		jobs := make([]penstock.NewJob, 10)
		for i := range jobs {
			jobs[i].Payload = []byte("x")
		}
		_, err := s.Queue("mails").Enqueue(t.Context(), jobs...)
		must(t, err)
	}
	b.Await("document.querySelector('#ready-mails').innerText.trim() === '202'")
	claimed, err := s.Queue("mails").Claim(t.Context(), driver.Claim{Jobs: 50, Lease: time.Minute, Worker: "w"})
	must(t, err)
	for _, j := range claimed {
		_, err := s.Queue("mails").Ack(t.Context(), j.Lease)
		must(t, err)
	}
	b.Await("document.querySelector('#ready-mails').innerText.trim() === '152'")

	// From a cause to all letters with it, and a count before they are discarded.
	b.Open(d.url + "/queues/mails/dead")
	click(".cause:nth-child(2) a", "location.search.includes('mailbox')")
	click(".button.danger", "location.pathname.endsWith('/discard')")
	if got := text("#matched"); got != "10" {
		t.Errorf("%s would be discarded", got)
	}
	click("#confirm", "location.search.includes('did=')")
	if got := text(".did"); got != "discarded: 10" {
		t.Errorf("after discarding the page says %q", got)
	}
	b.Open(d.url + "/queues/mails/dead")
	click("details summary", "document.querySelector('details').open")
	if got := text("details pre"); !strings.Contains(got, "\"to\": \"") {
		t.Errorf("the payload is shown as %q", got)
	}
	click("details form button", "document.querySelector('.did')?.innerText === 'sent back: 1'")
	if status, err := s.QueueStatus(t.Context()); err != nil || status[0].DeadLetters != 19 || status[0].Ready != 153 {
		t.Errorf("then there are %+v, %v", status, err)
	}
	click("details summary", "document.querySelector('details').open")
	b.Eval("document.querySelector('details [name=discard]').checked = true", nil)
	click("form[action*=resend] button", "document.querySelector('.did')?.innerText.startsWith('sent again as new: ')")
	if status, err := s.QueueStatus(t.Context()); err != nil || status[0].DeadLetters != 18 || status[0].Ready != 154 {
		t.Errorf("after one was sent again as new there are %+v, %v", status, err)
	}
	// Chosen ones: all of the page, none, and two. None is not all.
	chosen := func(want int) {
		t.Helper()
		b.Await(fmt.Sprintf("document.querySelectorAll('[name=number]:checked').length === %d", want))
	}
	b.Click("[data-all]")
	chosen(18)
	b.Click("[data-all]")
	chosen(0)
	click("#chosen .danger", "document.body.innerText.includes('choose at least one')")
	b.Open(d.url + "/queues/mails/dead")
	for _, n := range []string{"1", "2"} {
		b.Click(fmt.Sprintf(".choice:nth-of-type(%s) > input", n))
	}
	chosen(2)
	click("#chosen button", "location.pathname.endsWith('/dead/retry')")
	if got := text("#matched"); got != "2" {
		t.Errorf("%s would be retried of 2 chosen", got)
	}
	click("#confirm", "document.querySelector('.did')?.innerText === 'sent back: 2'")
	dead, err = s.DeadJobs(t.Context(), admin.DeadJobQuery{Queue: "mails", Limit: 1})
	must(t, err)
	b.Open(d.url + fmt.Sprintf("/queues/mails/jobs?id=%d", dead[0].Job.ID))
	click("form[action*='dead/retry'] button", "document.querySelector('.did')?.innerText === 'sent back: 1'")
	if status, err := s.QueueStatus(t.Context()); err != nil || status[0].DeadLetters != 15 || status[0].Ready != 157 {
		t.Errorf("after three more were retried there are %+v, %v", status, err)
	}

	b.Open(d.url + "/queues/mails")
	click("form[method=post] button", "document.querySelector('#paused') !== null")
	if status, err := s.QueueStatus(t.Context()); err != nil || !*status[0].Paused {
		t.Errorf("the queue is not paused: %v", err)
	}
	b.Eval("document.querySelector('details').open = true; document.querySelector('#limits [name=max_running]').value = 7; document.querySelector('#limits [name=max_attempts]').value = 3; document.querySelector('#limits button').focus()", nil)
	click("#limits button", "document.querySelector('.did')?.innerText === 'limits set'")
	if status, err := s.QueueStatus(t.Context()); err != nil || *status[0].MaxRunning != 7 || *status[0].MaxAttempts != 3 || !*status[0].Paused {
		t.Errorf("after limits were set there are %+v, %v", status, err)
	}

	click("form[action$=pause-schedule] button", "document.querySelector('.did')?.innerText === 'paused'")
	click("form[action$=run-schedule] button", "document.querySelector('.did')?.innerText.startsWith('enqueued: job ')")
	if all, err := s.Schedules(t.Context(), "mails"); err != nil || !all[0].Paused || all[0].LastJob == 0 {
		t.Errorf("after it was paused and run the schedule is %+v, %v", all, err)
	}
	click("form[action$=resume-schedule] button", "document.querySelector('.did')?.innerText === 'resumed'")

	b.Open(d.url + "/outboxes/orders")
	waits.WithLabelValues("orders", "billing").Observe(0.2)
	b.Await("document.querySelector('.latency')?.innerText.includes('of 1,') && document.querySelector('svg.waits') !== null")
	b.Eval("document.querySelector('input[name=key]').value = 'ann'", nil)
	click("form[role=search] button", "location.search.includes('key=ann')")
	if got := text(".state"); got != "dead" {
		t.Errorf("the message of ann is shown as %q", got)
	}

	// Several databases, of which one is down.
	down, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "down.db"), sqlite.Options{})
	must(t, err)
	must(t, down.Migrate(t.Context()))
	must(t, down.Close())
	several, err := web.Serve(web.Options{Listen: "127.0.0.1:0"}, console.NewSeveral("/ops", "", []console.Options{{Store: s, Title: "shop"}, {Store: down, Title: "billing"}}))
	must(t, err)
	t.Cleanup(func() { several.Close() })
	one := d.url
	d.url = "http://" + several.Addr + "/ops"
	look("databases", "/")
	if got := text("tbody tr:nth-child(2)"); !strings.Contains(got, "closed") {
		t.Errorf("of a database that is down the list says %q", got)
	}
	click("tbody a", "location.pathname === '/ops/shop/' && document.querySelector('#ready-mails') !== null")
	click("header a", "location.pathname === '/ops/' && document.querySelector('h1').innerText === 'Databases'")
	d.url = one
	pages, err := filepath.Glob("pages/*.html")
	must(t, err)
	for _, file := range pages {
		if name := strings.TrimSuffix(filepath.Base(file), ".html"); name != "layout" && !looked[name] {
			t.Errorf("axe has not looked at %s", file)
		}
	}

	// A user with read access sees no button.
	b.Headers(map[string]string{"Authorization": "Bearer r"})
	b.Open(d.url + "/queues/mails/dead")
	var buttons int
	if b.Eval("document.querySelectorAll('main form[method=post], .button').length", &buttons); buttons != 0 {
		t.Errorf("who may only read has %d buttons", buttons)
	}
	isMissing := func(text string) bool {
		return strings.Contains(text, "/queues/none") || strings.Contains(text, "dead/discard?chosen=1")
	} // as asked for
	if got := slices.DeleteFunc(b.Complaints(), isMissing); len(got) > 0 {
		t.Errorf("the browser complains: %s", strings.Join(got, "\n"))
	}

	// Another site's page can do nothing here, even with the credential that the browser would send.
	r, err := http.NewRequestWithContext(t.Context(), "POST", d.url+"/queues/mails/resume", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer o")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("a request of another site: %s", answer.Status)
	}
}
