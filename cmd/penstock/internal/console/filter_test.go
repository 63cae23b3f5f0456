package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// Lists of jobs are filtered by kind, key, group and age, next or newest first, page by page, each job once.
func TestJobsAreFiltered(t *testing.T) {
	url := postgrestest.Database(t)
	s, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	must(t, s.Migrate(t.Context()))
	t.Cleanup(func() { s.Close() })
	must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
	ctx, q := t.Context(), s.DriverQueue("mails")
	at := time.Now().Add(time.Hour)
	ids := map[string]string{}
	enqueue := func(name string, j penstock.NewJob) {
		made, err := q.Enqueue(ctx, j)
		must(t, err)
		ids[name] = fmt.Sprint(made[0].ID)
	}
	enqueue("run1", penstock.NewJob{Group: "r", Kind: "welcome"})
	enqueue("run2", penstock.NewJob{Group: "r", Kind: "bill", Key: "k"})
	enqueue("run3", penstock.NewJob{Group: "s", Kind: "welcome"})
	for _, group := range []string{"r", "r", "s"} {
		_, err := q.Claim(ctx, driver.Claim{Group: group, Jobs: 1, Lease: time.Hour, Worker: "w"})
		must(t, err)
	}
	enqueue("wait1", penstock.NewJob{Group: "r", Kind: "bill", Key: "k"})
	enqueue("wait2", penstock.NewJob{Group: "r", Kind: "welcome", Key: "k"})
	if _, err := q.Claim(ctx, driver.Claim{Group: "r", Jobs: 2, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	enqueue("late1", penstock.NewJob{NotBefore: at.Add(time.Minute), Kind: "bill"})
	enqueue("late2", penstock.NewJob{NotBefore: at, Kind: "welcome", Group: "r"})
	enqueue("late3", penstock.NewJob{NotBefore: at, Kind: "bill", Key: "x"})
	enqueue("a", penstock.NewJob{Priority: 1, Kind: "bill"})
	enqueue("b", penstock.NewJob{Kind: "bill", Key: "x"})
	enqueue("c", penstock.NewJob{Kind: "welcome"})
	enqueue("d", penstock.NewJob{Priority: -1, Kind: "bill"})
	enqueue("e", penstock.NewJob{})
	names := map[string]string{}
	for name, id := range ids {
		names[id] = name
	}

	d := serve(t, s)
	for request, want := range map[string]string{
		"ready":                              "d b c e a",
		"ready&newest=1":                     "e d c b a",
		"ready&kind=bill":                    "d b a",
		"ready&kind=bill&newest=1":           "d b a",
		"ready&kind=bill&key=x":              "b",
		"ready&kind=none":                    "",
		"ready&older_than=1h":                "",
		"ready&younger_than=1h&kind=welcome": "c",
		"running":                            "run1 run2 run3",
		"running&newest=1":                   "run3 run2 run1",
		"running&kind=welcome":               "run1 run3",
		"running&group=r&newest=1":           "run2 run1",
		"waiting&newest=1":                   "wait2 wait1",
		"waiting&kind=bill":                  "wait1",
		"waiting&older_than=1h":              "",
		"delayed":                            "late2 late3 late1",
		"delayed&newest=1":                   "late3 late2 late1",
		"delayed&kind=bill":                  "late3 late1",
		"delayed&kind=bill&newest=1&key=x":   "late3",
		"delayed&group=r":                    "late2",
	} {
		for _, limit := range []int{1, 2, 100} {
			var got []string
			for after := ""; ; {
				code, text := d.ask("r", "GET", fmt.Sprintf("/api/v1/queues/mails/jobs?state=%s&limit=%d&after=%s", request, limit, after), "")
				var l console.Lives
				must(t, json.Unmarshal(text, &l))
				if code != http.StatusOK || len(l.Items) > limit {
					t.Fatalf("%s: %d %s", request, code, text)
				}
				for _, one := range l.Items {
					got = append(got, names[one.ID])
				}
				if after = l.After; after == "" {
					break
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s, %d to a page: %v, want %s", request, limit, got, want)
			}
		}
	}

	// A search that finds nothing shows how far it has come, and continues from there.
	db := postgrestest.On(t, url)
	db.Exec(`insert into penstock.mails (payload, headers) select '', '{"penstock-kind": "many"}' from generate_series(1, 6000)`)
	enqueue("last", penstock.NewJob{Kind: "rare"})
	code, page := d.ask("r", "GET", "/queues/mails/jobs?state=ready&kind=rare", "")
	if code != http.StatusOK || !strings.Contains(string(page), `<span id="searched">5,000</span>`) || !strings.Contains(string(page), "Search further") {
		t.Errorf("a search for a rare kind: %d %s", code, page)
	}
	_, rest, _ := strings.Cut(string(page), `<a href="?state=ready&amp;kind=rare&amp;after=`)
	after, _, _ := strings.Cut(rest, `"`)
	if code, page = d.ask("r", "GET", "/queues/mails/jobs?state=ready&kind=rare&after="+after, ""); code != http.StatusOK || !strings.Contains(string(page), "jobs?id="+ids["last"]) {
		t.Errorf("further on: %d %s", code, page)
	}
}

// Dead letters whose errors begin with the same line are one cause, and are retried or discarded together.
// A text in quotes is a value of the job if it differs often, and a name otherwise.
func TestCausesLeaveOutQuotedValues(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
		var texts []string
		for _, value := range []string{"a", "b", "c", "d", "e", "f"} {
			texts = append(texts, "Cannot deserialize value of type `int` from String \""+value+"\": not a valid `int` value\n at [Source: (byte[])"+value+"]")
		}
		texts = append(texts, "KeyError: 'to'", "KeyError: 'from'")
		q := s.DriverQueue("mails")
		_, err := q.Enqueue(t.Context(), make([]penstock.NewJob, len(texts))...)
		must(t, err)
		claimed, err := q.Claim(t.Context(), driver.Claim{Jobs: len(texts), Lease: time.Minute})
		must(t, err)
		for i, text := range texts {
			must(t, q.DeadLetter(t.Context(), claimed[i].Lease, text))
		}
		_, text := serve(t, s).ask("r", "GET", "/api/v1/queues/mails/dead/causes", "")
		var all console.Causes
		must(t, json.Unmarshal(text, &all))
		if len(all.Causes) != 3 || all.Causes[0].Letters != 6 || all.Causes[0].Cause != "Cannot deserialize value of type `int` from String …: not a valid `int` value" {
			t.Errorf("the causes are %s", text)
		}
	})
}

func TestCausesAreFirstLines(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		must(t, s.CreateQueue(t.Context(), "mails", penstock.FIFO))
		q := s.DriverQueue("mails")
		_, err := q.Enqueue(t.Context(), make([]penstock.NewJob, 3)...)
		must(t, err)
		claimed, err := q.Claim(t.Context(), driver.Claim{Jobs: 3, Lease: time.Minute})
		must(t, err)
		for i, text := range []string{"panic: no address\n\tat mail.go:17", "panic: no address\n\tat other.go:4", "refused"} {
			must(t, q.DeadLetter(t.Context(), claimed[i].Lease, text))
		}
		d := serve(t, s)
		code, text := d.ask("r", "GET", "/api/v1/queues/mails/dead/causes", "")
		var all console.Causes
		must(t, json.Unmarshal(text, &all))
		if code != http.StatusOK || len(all.Causes) != 2 || all.Causes[0].Cause != "panic: no address" || all.Causes[0].Letters != 2 {
			t.Errorf("the causes are %d %s", code, text)
		}
		link := "/queues/mails/dead/discard?error=panic%3A&#43;no&#43;address"
		if _, page := d.ask("o", "GET", "/queues/mails/dead", ""); !strings.Contains(string(page), link) {
			t.Errorf("no link to discard them: %s", page)
		}
		if _, page := d.ask("o", "GET", "/queues/mails/dead/discard?error=panic%3A+no+address", ""); !strings.Contains(string(page), `<strong id="matched">2</strong>`) {
			t.Errorf("the page that confirms it: %s", page)
		}
		d.ask("o", "POST", fmt.Sprintf("/queues/mails/dead/discard?number=%d", claimed[2].ID), "")
		if log := d.log.String(); strings.Contains(log, "all") || !strings.Contains(log, "numbers") {
			t.Errorf("the audit of an action on one number: %s", log)
		}
		d.ask("o", "POST", "/queues/mails/dead/discard", "")
		if log := d.log.String(); !strings.Contains(log, `all`) {
			t.Errorf("the audit of an action on all: %s", log)
		}
	})
}
