package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sink/webhook"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

// ask calls a handler and parses the metrics in its answer.
func ask(t *testing.T, h http.Handler) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d, %v", w.Code, err)
	}
	return families
}

// figure is the value of one series, or -1 if there is none. Its name is name{label="value",…} with the labels in
// the order of their names. It may be the count of a histogram.
func figure(families map[string]*dto.MetricFamily, series string) float64 {
	name, _, _ := strings.Cut(series, "{")
	family := families[name]
	if family == nil {
		return -1
	}
	for _, m := range family.Metric {
		var labels []string
		for _, l := range m.Label {
			if l.GetValue() == "" { // for Prometheus the same as no label
				continue
			}
			labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
		slices.Sort(labels)
		if len(labels) > 0 && series != name+"{"+strings.Join(labels, ",")+"}" {
			continue
		}
		switch family.GetType() {
		case dto.MetricType_COUNTER:
			return m.Counter.GetValue()
		case dto.MetricType_HISTOGRAM:
			return float64(m.Histogram.GetSampleCount())
		default:
			return m.Gauge.GetValue()
		}
	}
	return -1
}

func wants(t *testing.T, families map[string]*dto.MetricFamily, want map[string]float64) {
	t.Helper()
	for series, v := range want {
		if got := figure(families, series); got != v {
			t.Errorf("%s is %v, want %v", series, got, v)
		}
	}
}

// lines are the series of all outboxes: {outbox="orders",subscription="…"}.
func of(name, subscription string) string {
	return fmt.Sprintf(`penstock_%s{outbox="orders",subscription=%q}`, name, subscription)
}

// A relay of two subscriptions sends to an endpoint that refuses one message of ten. One subscription parks it,
// and for the other it becomes a dead letter.
func TestRelay(t *testing.T) {
	const messages = 10
	store := sqlitetest.New(t)
	must(t, store.CreateOutbox(t.Context(), "orders"))
	for i := range messages {
		must(t, store.Publish(t.Context(), "orders", penstock.Message{Key: fmt.Sprint("k", i), Topic: "t", Payload: []byte("p")}))
	}
	if age := figure(ask(t, metrics.New(metrics.Options{Store: store}).Handler()), `penstock_outbox_unread_age_seconds{outbox="orders"}`); age <= 0 {
		t.Errorf("the messages of an outbox without a subscription are %v s old", age)
	}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/k3") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer endpoint.Close()
	sink, err := webhook.Open(webhook.Config{URL: endpoint.URL + "/{key}", AllowAddresses: []string{"127.0.0.1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close(context.Background())
	m := metrics.New(metrics.Options{Store: store, StatusEvery: time.Nanosecond})
	ended := make(chan error, 2)
	var relays []*relay.Relay
	for name, opts := range map[string]relay.Options{
		"parks":    {Limits: relay.Limits{RetryMin: time.Hour, RetryMax: time.Hour}},
		"gives-up": {MaxAttempts: 1},
	} {
		opts.Observer = m.Relay("orders", name)
		r, err := relay.New(store, "orders", name, sink, opts)
		if err != nil {
			t.Fatal(err)
		}
		relays = append(relays, r)
		source, err := store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: name, Holder: "test"}) // a later subscription begins behind the messages that the other has settled
		if err != nil {
			t.Fatal(err)
		}
		must(t, source.Close(t.Context()))
	}
	for _, r := range relays {
		go func() { ended <- r.Run(t.Context()) }()
	}
	families := ask(t, m.Handler())
	for deadline := time.Now().Add(time.Minute); figure(families, of("subscription_parked_messages", "parks")) != 1 || figure(families, of("subscription_dead_letters", "gives-up")) != 1 ||
		figure(families, of("relay_settled_messages_total", "parks")) != messages || figure(families, of("relay_settled_messages_total", "gives-up")) != messages; families = ask(t, m.Handler()) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to rest: %v, %v", families["penstock_relay_settled_messages_total"], families["penstock_subscription_parked_messages"])
		}
		time.Sleep(10 * time.Millisecond)
	}
	wants(t, families, map[string]float64{"penstock_database_up": 1, `penstock_outbox_segments{outbox="orders"}`: 0, `penstock_outbox_unread_age_seconds{outbox="orders"}`: 0})
	for _, name := range []string{"parks", "gives-up"} {
		wants(t, families, map[string]float64{
			of("subscription_backlog_messages", name): 0, of("subscription_oldest_unsettled_age_seconds", name): 0, of("subscription_lease_held", name): 1,
			of("relay_confirmed_messages_total", name): messages - 1, of("relay_refused_messages_total", name): 1, of("relay_commit_to_confirm_seconds", name): messages - 1,
			of("relay_sent_messages_total", name): messages, of("relay_fetched_messages_total", name): messages,
			of("relay_in_flight_messages", name): 0, of("relay_leases_held", name): 1,
			fmt.Sprintf(`penstock_relay_sinks{outbox="orders",state="up",subscription=%q}`, name): 1,
		})
		if figure(families, of("relay_send_duration_seconds", name)) < 1 || figure(families, of("relay_fetch_duration_seconds", name)) < 1 || figure(families, of("relay_settle_duration_seconds", name)) < 1 {
			t.Errorf("%s: durations are missing", name)
		}
	}
	wants(t, families, map[string]float64{of("subscription_settled_messages_total", "gives-up"): messages, of("relay_parked_messages_total", "parks"): 1, of("relay_dead_letters_total", "parks"): 0, of("relay_dead_letters_total", "gives-up"): 1, of("subscription_dead_letters", "parks"): 0})
	if problems := m.Problems(); len(problems) > 0 {
		t.Errorf("not ready: %v", problems)
	}
	for _, r := range relays {
		r.Drain()
	}
	must(t, <-ended, <-ended)
	wants(t, ask(t, m.Handler()), map[string]float64{of("relay_leases_held", "parks"): 0, of("subscription_lease_held", "parks"): 0})
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Jobs succeed, fail and die, as the metrics of the worker and of the status show.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "test.db")
		store, err := sqlite.Open(t.Context(), file, sqlite.Options{})
		must(t, err)
		defer store.Close()
		db, err := sqlite.OpenDB(file)
		must(t, err)
		defer db.Close()
		once := 1
		must(t, store.Migrate(t.Context()), store.CreateQueue(t.Context(), "mails", penstock.FIFO), store.SetQueue(t.Context(), "mails", penstock.QueueSettings{MaxAttempts: &once}), store.CreateQueue(t.Context(), "other", penstock.FIFO))
		queue := store.DriverQueue("mails")
		for i := range 5 {
			_, err := queue.Enqueue(t.Context(), penstock.NewJob{Payload: []byte(fmt.Sprint(i))}, penstock.NewJob{Group: fmt.Sprint("g", i)})
			must(t, err)
		}
		must(t, store.SetGroup(t.Context(), "mails", penstock.GroupPolicy{Group: "g0", MaxRunning: 7, Rate: penstock.Rate{Jobs: 1, Per: time.Hour, Burst: 4}}), store.HoldGroup(t.Context(), "mails", "g0", time.Hour, ""))
		// The database's clock is not the bubble's.
		_, err = db.ExecContext(t.Context(), "update "+sqlite.QueueTable("mails")+" set created_at = ?", time.Now().UnixMilli())
		must(t, err)
		time.Sleep(3 * time.Second)
		m := metrics.New(metrics.Options{Store: store, Queue: "mails", Groups: 2})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- work.Run(ctx, queue, func(_ context.Context, job penstock.Job) error {
				if string(job.Payload) == "3" {
					return errors.New("no")
				}
				return nil
			}, work.Options{Observer: m.Worker("mails")})
		}()
		time.Sleep(time.Second)
		stop()
		must(t, <-ended)
		families := ask(t, m.Handler())
		wants(t, families, map[string]float64{
			`penstock_worker_claimed_jobs_total{queue="mails"}`: 5, `penstock_worker_ended_jobs_total{queue="mails",result="done"}`: 4, `penstock_worker_ended_jobs_total{queue="mails",result="dead"}`: 1,
			`penstock_worker_enqueue_to_start_seconds{queue="mails"}`: 5, `penstock_queue_jobs{queue="mails",state="ready"}`: 5, `penstock_queue_jobs{queue="mails",state="running"}`: 0,
			`penstock_queue_dead_letters{queue="mails"}`: 1, `penstock_queue_paused{queue="mails"}`: 0, `penstock_queue_oldest_ready_age_seconds{queue="mails"}`: 4,
			`penstock_queue_group_max_running{group="g0",queue="mails"}`: 7, `penstock_queue_group_tokens{group="g0",queue="mails"}`: 4, `penstock_queue_group_held{group="g0",queue="mails"}`: 1,
			`penstock_queue_groups_capped{queue="mails"}`: 1, `penstock_queue_dead_letters{queue="other"}`: -1,
		})
		if n := len(families["penstock_queue_group_jobs"].Metric); n != 2*4 {
			t.Errorf("%d series of two groups and four states", n)
		}
		if h := families["penstock_worker_enqueue_to_start_seconds"].Metric[0].Histogram; h.GetSampleSum() < 15 || h.GetSampleSum() > 16 {
			t.Errorf("five jobs that waited for three seconds: %v", h.GetSampleSum())
		}
	})
}

// A worker by kind has series of its kinds, and one of all others: a producer cannot make series. Jobs of others come back again and
// again, in their first attempt. They do not start.
func TestKindsOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(metrics.Options{})
		o := m.Worker("mails", "welcome", "")
		for i, kind := range []string{"welcome", "welcome", "", "typo", "another", "other"} {
			j := penstock.Job{ID: int64(i), Attempt: 1, CreatedAt: time.Now(), Headers: map[string]string{penstock.HeaderKind: kind}}
			how, took, rounds := work.Done, time.Second, 1
			if i > 2 {
				how, took, rounds = work.Released, 0, 5
			}
			for range rounds {
				o.Started(j, time.Now())
				o.Ended(j, how, took)
			}
		}
		families := ask(t, m.Handler())
		wants(t, families, map[string]float64{`penstock_worker_ended_jobs_total{kind="other",queue="mails",result="released"}`: 15})
		for kind, n := range map[string]float64{`kind="welcome",`: 2, "": 1, `kind="other",`: 0, `kind="typo",`: -1} {
			wants(t, families, map[string]float64{
				"penstock_worker_ended_jobs_total{" + kind + `queue="mails",result="done"}`: n, "penstock_worker_job_duration_seconds{" + kind + `queue="mails"}`: n,
				"penstock_worker_enqueue_to_start_seconds{" + kind + `queue="mails"}`: n})
		}
	})
}

// A handler that hangs is visible while it runs, although its lease is extended and the job counts as running.
func TestLongestRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, job := metrics.New(metrics.Options{}), func(id int64) penstock.Job { return penstock.Job{ID: id, Attempt: 1} }
		o, other := m.Worker("mails"), m.Worker("mails") // two workers of a queue
		runs := func(want float64) {
			t.Helper()
			wants(t, ask(t, m.Handler()), map[string]float64{`penstock_worker_longest_running_seconds{queue="mails"}`: want})
		}
		runs(0)
		o.Started(job(1), time.Now())
		time.Sleep(time.Minute)
		other.Started(job(2), time.Now())
		time.Sleep(time.Hour)
		runs(3660)
		o.Ended(job(1), work.Done, time.Hour)
		runs(3600)
		other.Ended(job(2), work.Lost, time.Hour)
		runs(0)
	})
}

// database is a store whose status the test sets.
type database struct {
	reads    atomic.Int64
	err      error
	outboxes []admin.OutboxStatus
	queues   []admin.QueueStatus
	inboxes  []admin.InboxStatus
	group    string
	refused  error // of queues, inboxes and vacuum
	unread   []string
}

func (d *database) Status(ctx context.Context) ([]admin.OutboxStatus, error) {
	d.reads.Add(1)
	time.Sleep(time.Second)
	return d.outboxes, d.err
}

func (d *database) QueueStatus(ctx context.Context, names ...string) ([]admin.QueueStatus, error) {
	return d.queues, d.refused
}

func (d *database) QueueGroups(ctx context.Context, queue, after string, most int) ([]admin.GroupStatus, error) {
	return []admin.GroupStatus{{Group: d.group, Limits: &admin.GroupLimits{MaxRunning: 1, Rate: penstock.Rate{Jobs: 1, Per: time.Second}}}}, nil
}

// Schedules has one that is overdue for a minute, one that is paused, and one to come.
func (d *database) Schedules(_ context.Context, queue string) ([]penstock.Schedule, error) {
	now := time.Now()
	return []penstock.Schedule{{Queue: queue, Next: now.Add(time.Hour)}, {Queue: queue, Next: now.Add(-time.Minute)}, {Queue: queue, Next: now.Add(-time.Hour), Paused: true}}, d.refused
}

func (d *database) UnreadQueues(ctx context.Context) ([]string, error) { return d.unread, d.refused }

func (d *database) Inboxes(ctx context.Context) ([]admin.InboxStatus, error) {
	return d.inboxes, d.refused
}

func (d *database) VacuumPins(ctx context.Context) ([]admin.VacuumPin, error) {
	return []admin.VacuumPin{{Kind: admin.PinnedBySession, Age: time.Hour, Transactions: 7}}, d.refused
}

func (d *database) Retries() map[string]int64 { return map[string]int64{"deadlock": 3} }

// busy has some of everything.
func busy() *database {
	ring := []admin.SegmentStatus{{Slot: 0, Bytes: 8192}, {Slot: 1, Bytes: 16384, Current: true}}
	return &database{
		outboxes: []admin.OutboxStatus{{Outbox: "orders", Bytes: 24576, Segments: ring, Subscriptions: []admin.SubscriptionStatus{
			{Subscription: "billing", Backlog: 5, Settled: 100, OldestAge: 10 * time.Minute, Holder: "here"}}}},
		queues:  []admin.QueueStatus{{Queue: "mails", Ready: 3, OldestAge: 10 * time.Minute, Segments: ring}},
		inboxes: []admin.InboxStatus{{Consumer: "shipping", Held: 2, NextGap: time.Now().Add(-time.Minute), Segments: ring}},
	}
}

// Every described metric is exported, and Prometheus's own linter finds no fault.
func TestConventions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(metrics.Options{Store: busy(), Groups: 1})
		m.Relay("orders", "billing").Sent(relay.Send{})
		m.Worker("mails").Started(penstock.Job{Attempt: 1}, time.Now())
		m.Ingest().Answered("orders", 200, 1, time.Second)
		all := prometheus.NewPedanticRegistry()
		all.MustRegister(m)
		problems, err := testutil.GatherAndLint(all)
		if err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		families := ask(t, m.Handler())
		for _, row := range rows(t) {
			if name := strings.Split(row, "`")[1]; families[name] == nil {
				t.Errorf("%s is described, and not there", name)
			}
		}
		wants(t, families, map[string]float64{`penstock_vacuum_pin_age_seconds{kind="session"}`: 3600, `penstock_vacuum_pin_transactions{kind="session"}`: 7, `penstock_transaction_retries_total{reason="deadlock"}`: 3,
			`penstock_segment_bytes{name="orders",of="outbox",slot="1"}`: 16384, `penstock_inbox_overdue_seconds{consumer="shipping"}`: 61, `penstock_queue_schedule_overdue_seconds{queue="mails"}`: 61})
		for _, f := range families {
			if f.GetType() == dto.MetricType_HISTOGRAM && strings.HasPrefix(f.GetName(), "penstock_") && len(f.Metric[0].Histogram.Bucket) < 10 {
				t.Errorf("%s has no classic buckets", f.GetName())
			}
		}
		gathered, err := all.Gather()
		must(t, err)
		for _, f := range gathered {
			if f.GetType() == dto.MetricType_HISTOGRAM && f.Metric[0].Histogram.Schema == nil {
				t.Errorf("%s has no native buckets", f.GetName())
			}
		}
	})
}

// However often the metrics are scraped, the database is read at most once in ten seconds.
func TestStatusIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := busy()
		m := metrics.New(metrics.Options{Store: d})
		for range 15 {
			ask(t, m.Handler())
			m.Problems()
			time.Sleep(time.Second)
		}
		if n := d.reads.Load(); n != 2 {
			t.Errorf("it was read %d times in some fifteen seconds", n)
		}
	})
}

// While the database is down every part of its status fails. That blocks neither this read nor later ones.
func TestStatusOfADatabaseThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := busy()
		d.err = errors.New("connection refused")
		d.refused = d.err
		m := metrics.New(metrics.Options{Store: d})
		wants(t, ask(t, m.Handler()), map[string]float64{"penstock_database_up": 0})
		if code, text := ready(m, ""); code != http.StatusServiceUnavailable {
			t.Errorf("%d %q", code, text)
		}
		d.err, d.refused = nil, nil
		time.Sleep(time.Minute)
		wants(t, ask(t, m.Handler()), map[string]float64{"penstock_database_up": 1})
	})
}

// While the database cannot be read, no figures of it are exported, not even old ones. Figures that the role may not read are left
// out, and this is reported.
func TestStatusThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := busy()
		var log strings.Builder
		m := metrics.New(metrics.Options{Store: d, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		wants(t, ask(t, m.Handler()), map[string]float64{"penstock_database_up": 1, of("subscription_backlog_messages", "billing"): 5})
		d.err = errors.New("password=secret")
		time.Sleep(time.Minute)
		wants(t, ask(t, m.Handler()), map[string]float64{"penstock_database_up": 0, of("subscription_backlog_messages", "billing"): -1, `penstock_queue_paused{queue="mails"}`: -1})
		if code, text := ready(m, ""); code != http.StatusServiceUnavailable || text != "not ready\nthe status of the database cannot be read; the log says why\n" {
			t.Errorf("%d %q", code, text)
		}
		d.err = penstock.WithHint(&pgconn.PgError{Code: "42501"}, "grant it")
		time.Sleep(time.Minute)
		wants(t, ask(t, m.Handler()), map[string]float64{"penstock_database_up": 1, `penstock_queue_paused{queue="mails"}`: 0,
			`penstock_status_readable{part="outboxes"}`: 0, `penstock_status_readable{part="queues"}`: 1, `penstock_status_readable{part="inboxes"}`: 1})
		if code, text := ready(m, ""); code != http.StatusOK {
			t.Errorf("of a role that may read a part: %d %q", code, text)
		}
		d.unread = []string{"later", "others"}
		time.Sleep(time.Minute)
		wants(t, ask(t, m.Handler()), map[string]float64{`penstock_queue_paused{queue="mails"}`: 0, `penstock_status_readable{part="queues"}`: 0, `penstock_status_readable{part="inboxes"}`: 1})
		if !strings.Contains(log.String(), "penstock queue grant later ROLE --operate") {
			t.Errorf("the log does not name the grant:\n%s", log.String())
		}
		d.unread = nil
		time.Sleep(time.Minute)
		wants(t, ask(t, m.Handler()), map[string]float64{`penstock_status_readable{part="queues"}`: 1})
		d.refused = d.err
		time.Sleep(time.Minute)
		wants(t, ask(t, m.Handler()), map[string]float64{"penstock_database_up": 1, `penstock_queue_paused{queue="mails"}`: -1,
			`penstock_status_readable{part="queues"}`: 0, `penstock_status_readable{part="vacuum"}`: 0, `penstock_vacuum_pin_transactions{kind="session"}`: 7})
		if code, text := ready(m, ""); code != http.StatusServiceUnavailable || !strings.Contains(text, "the role may read no outbox, queue or inbox") || !strings.Contains(text, "grant it") {
			t.Errorf("of a role that may read nothing: %d %q", code, text)
		}
		for _, part := range []string{"outboxes", "queues", "inboxes", "vacuum"} {
			if n := strings.Count(log.String(), "part="+part+" err=\":  (SQLSTATE 42501) (grant it)\""); n != 1 {
				t.Errorf("the log names the grant for %s %d times, want once:\n%s", part, n, log.String())
			}
		}
		m.Worker("mails")
		ingests := metrics.New(metrics.Options{Store: d})
		ingests.Ingest()
		for what, m := range map[string]*metrics.Metrics{"a worker": m, "an ingest server": ingests} {
			if code, text := ready(m, ""); code != http.StatusOK {
				t.Errorf("of the role of %s that may read nothing: %d %q", what, code, text)
			}
		}
	})
}

// The relay's calls of its observer allocate nothing.
func TestObserverAllocatesNothing(t *testing.T) {
	o := metrics.New(metrics.Options{}).Relay("orders", "billing")
	s := relay.Send{Messages: make([]penstock.Message, 100), Answered: time.Now(), Took: time.Millisecond, Delivered: 100}
	for i := range s.Messages {
		s.Messages[i].CreatedAt = s.Answered.Add(-time.Second)
	}
	if n := testing.AllocsPerRun(100, func() { o.Sent(s); o.Settled(100, time.Millisecond); o.Fetched(100, time.Millisecond); o.InFlight(7) }); n > 0 {
		t.Errorf("%v allocations in a Send, a Settle and a Fetch of 100 messages", n)
	}
}
