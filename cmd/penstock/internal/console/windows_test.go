package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// narrow is a store that refuses to search for an error among more than a few dead letters at a
// time.
type narrow struct {
	store
	most  int
	pages *atomic.Int32 // that were asked for
}

func (n narrow) check(q admin.DeadJobQuery) error {
	if q.Error != "" && (len(q.IDs) == 0 || len(q.IDs) > n.most) {
		return fmt.Errorf("an error is looked for among %d dead letters, 0 for all", len(q.IDs))
	}
	return nil
}

func (n narrow) DeadJobs(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadJob, error) {
	if err := n.check(q); err != nil {
		return nil, err
	}
	n.pages.Add(1)
	return n.store.DeadJobs(ctx, q)
}

func (n narrow) DeadJobCauses(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadCause, error) {
	if err := n.check(q); err != nil {
		return nil, err
	}
	return n.store.DeadJobCauses(ctx, q)
}

func (n narrow) RetryDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error) {
	if err := n.check(q); err != nil {
		return 0, err
	}
	return n.store.RetryDeadJobs(ctx, q)
}

// A filter by error scans the dead letters a few at a time, and an answer shows where to continue.
func TestAFilterLooksAtFewAtATime(t *testing.T) {
	url := postgrestest.Database(t)
	s, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	must(t, s.Migrate(t.Context()))
	must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
	db, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer db.Close(t.Context())
	const all = 12_000
	_, err = db.Exec(t.Context(), `insert into penstock._dead_job (queue, id, attempt, created_at, priority, group_key, payload, failures)
		select q.id, i, 25, now(), 0, '', '\x78', jsonb_build_array(jsonb_build_object('attempt', 25, 'at', now(), 'error', case when i % 2 = 0 then 'even' when i in (3, 11999) then 'rare' else 'odd' end))
		  from penstock._queue q, generate_series(1, $1::int) i`, all)
	must(t, err)
	pages := &atomic.Int32{}
	d := serve(t, narrow{s, 5000, pages})
	ask := func(method, path, body string, answer any) {
		t.Helper()
		code, text := d.ask("o", method, "/api/v1/queues/mails/dead"+path, body)
		if err := json.Unmarshal(text, answer); code != 200 || err != nil {
			t.Fatalf("%s %s: %d %s", path, body, code, text)
		}
	}
	var numbers []int64
	for after, pages := "0", 0; after != ""; pages++ {
		var page console.List[console.DeadLetter]
		ask("GET", "?error=rare&after="+after, "", &page)
		for _, l := range page.Items {
			numbers = append(numbers, l.Number)
		}
		if after = page.After; pages > all {
			t.Fatal("there is no end")
		}
	}
	if fmt.Sprint(numbers) != "[3 11999]" {
		t.Errorf("by pages %v are found", numbers)
	}
	pages.Store(0)
	for after := "0"; after != ""; {
		var page console.List[console.DeadLetter]
		ask("GET", "?error=nobody+has+this&after="+after, "", &page)
		after = page.After
	}
	if n := pages.Load(); n != 0 {
		t.Errorf("%d pages of contents were read for an error that none has", n)
	}
	var done, total console.Done
	ask("POST", "/retry", `{"error": "even", "dry_run": true}`, &done)
	if done.Matched < 2500 || done.Done != 0 || done.Matched < all/2 && done.After == 0 {
		t.Errorf("a dry run says %+v", done)
	}
	total.After = 5000
	for calls := 0; calls == 0 || done.More; calls++ { // a call on a busy machine ends before the list does
		done = console.Done{}
		ask("POST", "/discard", fmt.Sprintf(`{"error": "rare", "dry_run": true, "after": %d}`, total.After), &done)
		total.Matched, total.Looked, total.After = total.Matched+done.Matched, total.Looked+done.Looked, done.After
	}
	if total.Matched != 1 || total.Looked != 7000 || total.Done != 0 {
		t.Errorf("behind the 5,000th dry runs say %+v", total)
	}
	total = console.Done{}
	for calls := 0; calls == 0 || done.More; calls++ {
		done = console.Done{}
		ask("POST", "/retry", fmt.Sprintf(`{"error": "even", "after": %d}`, total.After), &done)
		total.Done, total.Looked, total.After = total.Done+done.Done, total.Looked+done.Looked, done.After
		if done.Done > 30_000 || done.More != (done.After > 0) || calls > all {
			t.Fatalf("after %d calls %+v, in all %+v", calls, done, total)
		}
	}
	if total.Done != all/2 || total.Looked != all {
		t.Errorf("in all %+v were sent back", total)
	}
	for path, want := range map[string]string{"?error=even": "None", "?error=rare": "rare", "/discard?error=rare": "dead letters"} {
		if code, text := d.ask("o", "GET", "/queues/mails/dead"+path, ""); code != 200 || !strings.Contains(string(text), want) {
			t.Errorf("the page %s is %d without %q", path, code, want)
		}
	}
}
