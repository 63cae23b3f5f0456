package adopttest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/test/suite"
)

func (f *fixture) insert(bodies ...string) {
	for _, b := range bodies {
		f.exec(fmt.Sprintf("insert into shop (part, body) values ('%s', '%s')", b[:1], b))
	}
}

func parkedInOrder(f *fixture) {
	f.Define(f, Shop)
	f.insert("a1", "b1", "a2", "a3")
	table := f.open(shop())
	src := f.subscribe(table)
	b := f.fetch(src)
	f.want(b, "a1", "b1", "a2", "a3")
	f.settle(src, b, parked(1, time.Hour), ok, behind, behind)
	f.rows(1, "shop where done_at is null and tries = 1 and failure = 'refused, and this is a long story of why'")
	f.insert("a4", "b2")
	b = f.fetch(src)
	f.want(b, "a4", "b2")
	suite.Equal(f, b.KeyOrder, []driver.KeyOrder{driver.BehindParked, driver.InOrder}, "order of the keys")
	f.settle(src, b, behind, ok)
	suite.Equal(f, suite.Get(table.RetryParked(f.Context(), "a")).Must(f, "RetryParked"), 1, "RetryParked")
	b = f.fetch(src)
	f.want(b, "a1") // alone, since it has been refused
	if m := b.Messages[0]; m.Attempt != 2 || m.FailedSince.IsZero() || m.ID != "shop-1" {
		f.Errorf("got %+v", m)
	}
	f.settle(src, b)
	b = f.fetch(src)
	f.want(b, "a2", "a3", "a4")
	f.settle(src, b, ok, parked(1, 0), behind)
	for _, want := range []string{"a3", "a4"} {
		b = f.fetch(src)
		f.want(b, want)
		f.settle(src, b)
	}
	f.insert("a5")
	b = f.fetch(src)
	suite.Equal(f, b.Order(0), driver.InOrder, "nothing of the key is parked any more: the order of a5")
	f.settle(src, b)
	f.rows(0, "shop where done_at is null or failure is not null")
}

func parkedSurvives(f *fixture) {
	f.Define(f, Shop)
	f.insert("k0", "k1", "k2")
	table := f.open(shop())
	src := f.subscribe(table)
	b := f.fetch(src)
	began := time.Now()
	f.settle(src, b, parked(1, time.Hour), behind, behind)
	f.OK(src.Close(f.Context()))
	src = f.subscribe(table)
	f.insert("k3")
	b = f.fetch(src)
	f.want(b, "k3")
	suite.Equal(f, b.Order(0), driver.BehindParked, "order of the first key")
	keys := suite.Get(table.ParkedKeys(f.Context(), 10)).Must(f, "ParkedKeys")
	if len(keys) != 1 || keys[0].Key != "k" || keys[0].Messages != 3 || keys[0].Attempt != 1 || keys[0].Held || keys[0].Err == "" || keys[0].Retry.Before(began.Add(time.Hour-time.Second)) {
		f.Errorf("parked keys %+v", keys)
	}
	status := suite.Get(table.Status(f.Context())).Must(f, "Status")
	if status.Parked != 3 || status.ParkedKeys != 1 || status.Backlog != 1 || status.Holder != "test" || status.Epoch != 2 {
		f.Errorf("status %+v", status)
	}
	suite.Equal(f, suite.Get(table.RetryParked(f.Context(), "other")).Must(f, "RetryParked"), 0, "RetryParked")
	suite.Equal(f, suite.Get(table.RetryParked(f.Context())).Must(f, "RetryParked"), 1, "RetryParked")
	f.want(f.fetch(src), "k0")
}

func deadLetters(f *fixture) {
	f.Define(f, Shop)
	for _, discard := range []bool{false, true} {
		f.exec("delete from shop")
		f.insert("a1", "a2", "b1")
		table := f.open(shop())
		src := f.subscribe(table)
		b := f.fetch(src)
		dead := driver.Verdict{Outcome: driver.Dead, Failures: failed(1)}
		hold := dead
		hold.Hold = true
		f.settle(src, b, hold, behind, dead)
		found := suite.Get(table.DeadLetters(f.Context(), admin.DeadLetterQuery{})).Must(f, "DeadLetters")
		if len(found) != 2 || string(found[0].Message.Payload) != "a1" || !found[0].Held || found[1].Held || found[0].Err() == "" || found[0].Message.Attempt != 1 {
			f.Fatalf("found %+v", found)
		}
		byID, err := table.DeadLetters(f.Context(), admin.DeadLetterQuery{IDs: []string{found[1].Message.ID}})
		if err != nil || len(byID) != 1 || string(byID[0].Message.Payload) != "b1" {
			f.Errorf("by its id: %+v, %v", byID, err)
		}
		if status, err := table.Status(f.Context()); err != nil || status.DeadLetters != 2 || status.HeldKeys != 1 || status.Backlog != 0 {
			f.Errorf("status %+v, %v", status, err)
		}
		f.rows(2, "shop where done_at is null and tries = 1")
		change, left := table.RetryDeadLetters, []string{"a1", "b1"}
		if discard {
			change, left = table.DiscardDeadLetters, nil
		}
		if n, err := change(f.Context(), admin.DeadLetterQuery{}); err != nil || n != 2 {
			f.Fatalf("%d were chosen, %v", n, err)
		}
		if discard {
			f.rows(2, "shop where done_at is not null and failure is not null")
		}
		var got []string
		for len(got) < len(left)+1 {
			b := f.fetch(src)
			got = append(got, payloads(b)...)
			f.settle(src, b)
		}
		slices.Sort(got)
		suite.Equal(f, got, slices.Sorted(slices.Values(append(left, "a2"))), "discard=%v: came", discard)
		f.OK(src.Close(f.Context()))
	}
}

// takenAway: the application deletes a row that is parked, and one that is a dead letter. The rows that wait for them continue.
func takenAway(f *fixture) {
	f.Define(f, Shop)
	f.insert("a1", "a2", "b1", "b2")
	c := shop()
	c.Sweep = time.Millisecond
	table := f.open(c)
	src := f.subscribe(table)
	b := f.fetch(src)
	f.settle(src, b, parked(1, time.Hour), behind, driver.Verdict{Outcome: driver.Dead, Failures: failed(1), Hold: true}, behind)
	f.exec("delete from shop where body = 'a1'", "update shop set done_at = "+f.Ago(0)+" where body = 'b1'")
	var got []string
	f.Eventually("the others go on", func() bool {
		f.OK(src.Renew(f.Context()))
		b := suite.Get(src.Fetch(f.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})).Must(f, "Fetch")
		got = append(got, payloads(b)...)
		return len(got) == 2
	})
	if slices.Sort(got); !slices.Equal(got, []string{"a2", "b2"}) {
		f.Errorf("got %q", got)
	}
	if status, err := table.Status(f.Context()); err != nil || status.DeadLetters != 0 {
		f.Errorf("status %+v, %v", status, err)
	}
}

// unfit: a row that cannot be a message is a dead letter that says so, and no other row waits for it.
func unfit(f *fixture) {
	f.Define(f, Shop)
	f.exec("insert into shop (part, body) values ('"+strings.Repeat("k", penstock.MaxKeyBytes+1)+"', 'too long')", "insert into shop (part, body) values ('k', 'good')")
	table := f.open(shop())
	src := f.subscribe(table)
	f.want(f.fetch(src), "good")
	found := suite.Get(table.DeadLetters(f.Context(), admin.DeadLetterQuery{})).Must(f, "DeadLetters")
	if len(found) != 1 || string(found[0].Message.Payload) != "too long" || !strings.Contains(found[0].Err(), "key") {
		f.Errorf("found %+v", found)
	}
}

// refuses: a feature that this database lacks, or a mapping that does not fit the table, is an error that says
// the next step.
func refuses(f *fixture) {
	f.Define(f, Shop)
	f.Define(f, Bare)
	f.Define(f, Marked)
	for field, change := range map[string]func(*adopted.Config){
		"workers":         func(c *adopted.Config) { c.Workers = 2 },
		"delivered":       func(c *adopted.Config) { c.Archive = "past" },
		"table":           func(c *adopted.Config) { c.Table = "nowhere" },
		"columns.payload": func(c *adopted.Config) { c.Columns.Payload = "text" },
		"columns.order":   func(c *adopted.Config) { c.Columns.Order = []string{"body"} },
		"columns.id":      func(c *adopted.Config) { c.Columns.ID = "tries"; c.Columns.Attempts = "" },
		"topic":           func(c *adopted.Config) { c.Columns.Topic, c.Topic = "", "{nothing}" },
		"start":           func(*adopted.Config) {},
	} {
		c := shop()
		change(&c)
		table, err := f.Open("sub", c)
		if err == nil {
			start := driver.FromBeginning
			if field == "start" {
				start = driver.FromNow
			}
			_, err = table.Subscribe(f.Context(), driver.Subscribe{Holder: "test", Start: start})
			f.OK(table.Close())
		}
		f.misfit(err, field)
	}
	for _, c := range []adopted.Config{
		{Table: "bare", Columns: adopted.Columns{ID: "id", Order: []string{"at"}, Payload: "body"}, Delivered: adopted.Delete},
		{Table: "marked", Columns: adopted.Columns{ID: "id", Payload: "body"}, Delivered: adopted.Delete},
	} {
		table := f.open(c)
		_, err := table.Subscribe(f.Context(), driver.Subscribe{Holder: "test"})
		f.misfit(err, "columns.order")
	}
	f.Define(f, Long)
	table := f.open(adopted.Config{Table: "long_ids", Columns: adopted.Columns{ID: "id", Order: []string{"at"}, Payload: "body"}, Delivered: adopted.Delete})
	_, err := table.Subscribe(f.Context(), driver.Subscribe{Holder: "test"})
	f.misfit(err, "columns.id")
	all, err := f.Adoptions(f.Context())
	if err != nil || len(all) != 0 {
		f.Errorf("what was refused is remembered: %+v, %v", all, err)
	}
}

// shares: two subscriptions of one table each mark their own columns.
func shares(f *fixture) {
	f.Define(f, Shop)
	f.insert("a1")
	f.subscribe(f.open(shop()))
	for _, change := range []func(*adopted.Config){func(*adopted.Config) {}, func(c *adopted.Config) { c.Delivered = adopted.Delete }} {
		c := shop()
		change(&c)
		other := suite.Get(f.Open("other", c)).Must(f, "Open")
		_, err := other.Subscribe(f.Context(), driver.Subscribe{Holder: "test"})
		f.misfit(err, "delivered")
		f.OK(other.Close())
	}
	c := shop()
	c.Columns.ProcessedAt, c.Columns.Status = "", "state"
	other := suite.Get(f.Open("other", c)).Must(f, "Open")
	defer func() { _ = other.Close() }()
	b := f.fetch(f.subscribe(other))
	f.want(b, "a1")
}

func drop(f *fixture) {
	f.Define(f, Shop)
	f.insert("a1", "a2")
	table := f.open(shop())
	if status, err := table.Status(f.Context()); err != nil || status.Backlog != 2 || status.Epoch != 0 {
		f.Errorf("before it has run: %+v, %v", status, err)
	}
	f.MustBe(suite.Err(table.ParkedKeys(f.Context(), 1)), penstock.ErrNoSubscription, "ParkedKeys before it has run")
	src := f.subscribe(table)
	b := f.fetch(src)
	f.settle(src, b, parked(1, time.Hour), behind)
	all := suite.Get(f.Adoptions(f.Context())).Must(f, "Adoptions")
	if len(all) != 1 || all[0].Status.Subscription != "sub" || all[0].Status.Parked != 2 || all[0].Status.Holder != "test" || !strings.Contains(all[0].Table, "shop") {
		f.Errorf("remembered are %+v", all)
	}
	f.OK(table.Drop(f.Context()))
	f.MustBe(src.Renew(f.Context()), penstock.ErrFenced, "Renew by the reader of a table that was dropped")
	f.MustBe(table.Drop(f.Context()), penstock.ErrNoSubscription, "Drop again")
	f.want(f.fetch(f.subscribe(table)), "a1", "a2") // as if they had not been read
}
