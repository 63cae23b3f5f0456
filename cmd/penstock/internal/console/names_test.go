package console_test

import (
	"html"
	neturl "net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
)

// Every link works, whatever the names of outboxes, subscriptions, queues, inboxes, keys, groups, topics and ids are.
func TestLinksOfAwkwardNames(t *testing.T) {
	const name = "a,;\"\\%{}é𝒳 /?#&+'<b>%2F.."
	eachStore(t, func(t *testing.T, s store) {
		ctx := t.Context()
		must(t, s.CreateOutbox(ctx, name))
		must(t, s.CreateQueue(ctx, name+"q", penstock.FIFO))
		must(t, s.CreateInbox(ctx, name, 0))
		must(t, s.SetSchedule(ctx, penstock.Schedule{Queue: name + "q", Name: name, Cron: "@daily"}))
		source, err := s.Subscribe(ctx, driver.Subscribe{Outbox: name, Subscription: name, Holder: name})
		must(t, err)
		must(t, s.Publish(ctx, name, penstock.Message{ID: name, Key: name, Topic: name, Headers: map[string]string{name: name}}, penstock.Message{ID: name + "2", Key: name + "2"}))
		b, err := source.Fetch(ctx, driver.Limit{Messages: 10, Bytes: 1 << 20})
		must(t, err)
		failure := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: name}}
		must(t, storetest.Settle(ctx, source, driver.Settled{Batch: b, Verdicts: []driver.Verdict{{Outcome: driver.Dead, Failures: failure}, {Outcome: driver.Parked, Failures: failure, RetryIn: time.Hour}}}))
		must(t, source.Close(ctx))
		q := s.DriverQueue(name + "q")
		_, err = q.Enqueue(ctx, penstock.NewJob{Key: name, Group: name}, penstock.NewJob{Key: name + "2", Group: name})
		must(t, err)
		jobs, err := q.Claim(ctx, driver.Claim{Jobs: 1, Lease: time.Hour, Worker: name, Group: name})
		must(t, err)
		must(t, q.DeadLetter(ctx, jobs[0].Lease, name))

		d := serve(t, s)
		href := regexp.MustCompile(`(?:href|action)="([^"]*)"`)
		seen, todo := map[string]bool{}, []string{"/"}
		named := 0
		for len(todo) > 0 && len(seen) < 200 {
			path := todo[0]
			todo = todo[1:]
			if seen[path] || strings.HasPrefix(path, "/static/") {
				continue
			}
			seen[path] = true
			code, text := d.ask("r", "GET", path, "")
			if code != 200 {
				t.Errorf("%s: %d %.300s", path, code, text)
				continue
			}
			if strings.Contains(html.UnescapeString(string(text)), name) {
				named++
			}
			for _, found := range href.FindAllStringSubmatch(string(text), -1) {
				base, err := neturl.Parse("/ops" + path)
				must(t, err)
				to, err := base.Parse(html.UnescapeString(found[1]))
				if err != nil || to.Host != "" {
					t.Errorf("%s has a link to %q: %v", path, found[1], err)
					continue
				}
				if rest, ok := strings.CutPrefix(to.RequestURI(), "/ops"); ok && strings.HasPrefix(found[0], "href") {
					todo = append(todo, rest)
				}
			}
		}
		t.Logf("%d pages, %d of which have the name", len(seen), named)
		if named < 5 {
			t.Errorf("only %d of %d pages have the name", named, len(seen))
		}
	})
}
