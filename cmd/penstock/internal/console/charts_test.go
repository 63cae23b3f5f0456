package console_test

import (
	"context"
	"encoding/json"
	"html"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/store/sqlite"
)

// withSamples is a store that keeps samples.
type withSamples struct {
	store
	samples []admin.Samples
}

func (s withSamples) Samples(context.Context, time.Duration) ([]admin.Samples, error) {
	return s.samples, nil
}

// sampleHours writes samples of three hours of the queue mails and the subscription billing of orders.
func sampleHours(t *testing.T, url string) {
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	_, err = conn.Exec(t.Context(), `insert into penstock._sample (series, at, done, arrived, ended, failed, oldest, dead)
		select s.id, clock_timestamp() - (180 - i) * interval '1 min', case when s.id > 0 then (select jsonb_agg(jsonb_build_object('of', p.of, 'name', p.name, 'jobs', p.jobs,
		           'wait', array[.02, .3 + .2 * sin(i / 15.0)], 'run', array[p.jobs * .01, p.jobs * .04 + .02 * sin(i / 9.0)]))
		           from (values ('', '', 9), ('kind', 'welcome', 6), ('kind', 'digest', 3), ('worker', 'ann-1', 5), ('worker', 'ann-2', 4)) p(of, name, jobs)) end, i * 40 + 200 * sin(i / 20.0), i * 39 + 190 * sin((i - 3) / 20.0), case when s.id > 0 then i * 6 + 40 * sin(i / 9.0) else 0 end,
		       greatest(30 * sin(i / 20.0), 0), i / 6
		  from (select q.id from penstock._queue q where q.name = 'mails' union all select -b.id from penstock._subscription b where b.outbox = 'orders') s, generate_series(1, 179) i`)
	must(t, err)
	must(t, conn.Close(t.Context()))
}

// The charts have what the samples say: rates between two, no line over a gap, and nothing below zero after a restore.
func TestCharts(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), sqlite.Options{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	must(t, s.Migrate(t.Context()))
	must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
	must(t, s.CreateOutbox(t.Context(), "orders"))

	d := serve(t, s)
	for path, want := range map[string]string{"/queues/mails": "This database keeps no samples: PostgreSQL does.", "/api/v1/queues/mails/samples": `{"queue":"mails","points":[]}`} {
		if code, text := d.ask("r", "GET", path, ""); code != 200 || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d, without %q", path, code, want)
		}
	}
	d = serve(t, withSamples{store: s})
	if _, text := d.ask("r", "GET", "/queues/mails", ""); !strings.Contains(string(text), "No samples yet") {
		t.Error("without a sample the page does not say so")
	}

	if _, text := d.ask("r", "GET", "/queues/mails", ""); strings.Contains(string(text), "Done jobs ran for") {
		t.Error("without done jobs there is a chart of them")
	}
	began := time.Now().UTC().Add(-2 * time.Hour)
	at := func(minute int, in, out, failed, dead int64) admin.Sample {
		return admin.Sample{At: began.Add(time.Duration(minute) * time.Minute), In: in, Out: out, Failed: failed, Dead: dead, OldestAge: time.Duration(minute) * time.Second}
	}
	took := at(33, 2017, 2002, 1, 1000)
	took.Done = []admin.DoneSample{{Jobs: 4, Wait: []float64{.5, 2}, Run: []float64{.025, .5}}, {Of: "kind", Name: "welcome", Jobs: 3, Run: []float64{.02, .125}}, {Of: "worker", Name: "ann-1", Jobs: 4, Wait: []float64{.5, 2}, Run: []float64{.025, .5}}}
	d = serve(t, withSamples{s, []admin.Samples{{Queue: "mails", Points: []admin.Sample{
		at(0, 1000, 500, 7, 0), at(1, 1100, 560, 7, 3), at(2, 1120, 600, 9, 3),
		at(30, 4000, 3400, 9, 3),                // no worker ran
		at(31, 5, 2, 1, 0), at(32, 17, 2, 1, 0), // restored
		took, at(33, 1, 1, 1, 1), // twice at one time
	}}}})
	code, text := d.ask("r", "GET", "/queues/mails", "")
	page := html.UnescapeString(string(text))
	for _, want := range []string{
		"in: now 2,000 a minute, at most 2,000 a minute, out: now 2,000 a minute, at most 2,000 a minute",
		"failed: now 0 a minute, at most 2 a minute", "oldest: now 33.0 s, at most 33.0 s", "dead letters: now 1,000+, at most 1,000+",
		`<td data-label="In">`,
		"p50: now 500 ms, at most 500 ms, p99: now 2000 ms", "p50: now 25 ms, at most 25 ms, p99: now 500 ms, at most 500 ms",
		`>welcome</th>`, ` 1,500</td><td data-label="Began after p50">–</td><td data-label="Began after p99">–</td><td data-label="Ran for p50">20 ms</td><td data-label="Ran for p99">125 ms</td>`, `>worker ann-1</th>`,
	} {
		if code != 200 || !strings.Contains(page, want) {
			t.Errorf("%d, without %q", code, want)
		}
	}
	_, css := d.ask("r", "GET", "/static/console.css", "")
	lines := regexp.MustCompile(`<path class="([^"]*)"`).FindAllStringSubmatch(page, -1)
	for _, line := range lines {
		if !strings.Contains(string(css), " path."+line[1]+" { stroke: ") {
			t.Errorf("no line of class %s is seen in a chart", line[1])
		}
	}
	in := regexp.MustCompile(`<path class="in" d="([^"]*)"`).FindStringSubmatch(page)
	if in == nil || strings.Count(in[1], "M") != 2 || strings.Count(in[1], "L") != 4 || strings.Contains(in[1], "-") {
		t.Errorf("the line of in is %q, want two pieces with six points", in)
	}
	if p50 := regexp.MustCompile(`<path class="p50" d="([^"]*)"`).FindStringSubmatch(page); p50 == nil || strings.Contains(p50[1], "L") || !strings.HasPrefix(p50[1], "M") {
		t.Errorf("the line of p50 is %q, want a lone point: no other minute had a job", p50)
	}
	var api admin.Samples
	_, text = d.ask("r", "GET", "/api/v1/queues/mails/samples", "")
	must(t, json.Unmarshal(text, &api))
	if len(api.Points) != 8 || api.Points[1].In != 1100 {
		t.Errorf("the API has %s", text)
	}
	if _, text := d.ask("r", "GET", "/", ""); !strings.Contains(string(text), `aria-label="in 2,000, out 2,000, failed 0 a minute"`) {
		t.Error("the overview has no line of the queue")
	}
}

// The first minutes of a queue fill its charts, and a lone point at the right edge is within the picture.
func TestChartsOfAYoungQueue(t *testing.T) {
	s := sqlitetest.New(t)
	must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
	began := time.Now().UTC().Add(-10 * time.Minute)
	points := make([]admin.Sample, 12)
	for i := range points {
		points[i] = admin.Sample{At: began.Add(time.Duration(i) * time.Minute), In: int64(60 * i), Out: int64(50 * i)}
	}
	points[11].Done = []admin.DoneSample{{Jobs: 4, Wait: []float64{.5, 2}, Run: []float64{.025, .5}}, {Of: "kind", Name: "welcome", Jobs: 4}}
	d := serve(t, withSamples{s, []admin.Samples{{Queue: "mails", Points: points}}})
	for _, path := range []string{"/queues/mails", "/"} {
		_, text := d.ask("r", "GET", path, "")
		page := html.UnescapeString(string(text))
		if since := "since " + began.Format("15:04") + " UTC"; path != "/" && !strings.Contains(page, since) {
			t.Errorf("%s does not say %q", path, since)
		}
		lines := regexp.MustCompile(`viewBox="0 0 (\d+) |<path class="(\w+)" d="M([0-9.]+) [0-9.]+(h?)`).FindAllStringSubmatch(page, -1)
		width, seen := 0.0, 0
		for _, line := range lines {
			if line[1] != "" {
				width, _ = strconv.ParseFloat(line[1], 64)
				continue
			}
			x, _ := strconv.ParseFloat(line[3], 64)
			if seen++; line[4] != "h" || x+2 > width || line[2] == "in" && x > width/2 {
				t.Errorf("%s: the line of %s begins at %v of %v", path, line[2], x, width)
			}
		}
		if seen < 2 {
			t.Errorf("%s has %d lines", path, seen)
		}
	}
	_, text := d.ask("r", "GET", "/", "")
	for _, want := range []string{`<td data-label="In">60/min</td><td data-label="Out">50/min</td><td data-label="Failed">0/min</td>`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the overview is without %s", want)
		}
	}
}
