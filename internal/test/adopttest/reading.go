package adopttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/test/suite"
)

func content(f *fixture) {
	f.Define(f, Shop)
	f.exec(`insert into shop (part, kind, body, extra) values ('k', 'orders', '', '{"a": "x", "n": 7, "o": {"b": null}, "nothing": null}')`, `insert into shop (body) values ('€''?\{id}')`)
	c := shop()
	c.Headers = map[string]string{"place": "{id}/{kind}", "none": "{part}"}
	src := f.subscribe(f.open(c))
	b := f.fetch(src)
	suite.MustEqual(f, len(b.Messages), 2, "messages")
	m, n := b.Messages[0], b.Messages[1]
	if m.Key != "k" || m.Topic != "orders" || m.ID != "shop-1" || len(m.Payload) != 0 || !m.CreatedAt.IsZero() || m.Attempt != 1 {
		f.Errorf("got %+v", m)
	}
	if o := strings.ReplaceAll(m.Headers["o"], " ", ""); len(m.Headers) != 5 || m.Headers["a"] != "x" || m.Headers["n"] != "7" || o != `{"b":null}` || m.Headers["place"] != "1/orders" || m.Headers["none"] != "k" {
		f.Errorf("got %+v", m.Headers)
	}
	if n.Key != "" || n.Topic != "t" || len(n.Headers) != 1 || !strings.HasSuffix(n.Headers["place"], "/t") || !strings.Contains(string(n.Payload), "{id}") || !strings.HasPrefix(string(n.Payload), "€'?") {
		f.Errorf("got %+v", n)
	}
}

func rolledBack(f *fixture) {
	f.Define(f, Shop)
	src := f.subscribe(f.open(shop()))
	tx := suite.Get(f.Begin(f.Context())).Must(f, "Begin")
	f.OK(tx.Exec(f.Context(), "insert into shop (body) values ('never')"))
	f.exec("insert into shop (body) values ('a')")
	f.want(f.fetch(src), "a")
	f.OK(tx.Rollback())
	f.exec("insert into shop (body) values ('b')")
	f.want(f.fetch(src), "b")
}

// late: a row that commits behind others comes before rows that saw it, within the margin, and is still
// delivered beyond it.
func late(f *fixture) {
	f.Define(f, Shop)
	f.Define(f, Letters)
	src := f.subscribe(f.open(shop()))
	tx := suite.Get(f.Begin(f.Context())).Must(f, "Begin")
	f.OK(tx.Exec(f.Context(), "insert into shop (part, body) values ('k', 'first')"))
	for i := range 5 {
		var rows []string
		for n := range 200 {
			rows = append(rows, fmt.Sprintf("('%d-%d')", i, n))
		}
		f.exec("insert into shop (body) values " + strings.Join(rows, ", "))
		for n := 0; n < 200; {
			b := f.fetch(src)
			n += len(b.Messages)
			f.settle(src, b)
		}
	}
	f.OK(tx.Commit())
	f.exec("insert into shop (part, body) values ('k', 'second')")
	f.want(f.fetch(src), "first", "second")

	c := letters()
	c.Margin, c.Sweep = 10*time.Millisecond, 20*time.Millisecond
	table := suite.Get(f.Open("letters", c)).Must(f, "Open")
	defer func() { _ = table.Close() }()
	src = f.subscribe(table)
	f.exec("insert into letters (message) values ('early')")
	b := f.fetch(src)
	f.want(b, "early")
	f.settle(src, b)
	f.exec("insert into letters (ts, message) values (" + f.Ago(5*time.Minute) + ", 'late')")
	f.want(f.fetch(src), "late")
}

// farAhead: one row has the time of a wrong clock. It does not move the mark, so new rows are read at once and not by a sweep.
func farAhead(f *fixture) {
	f.Define(f, Letters)
	c := letters()
	c.Sweep = time.Hour
	src := f.subscribe(f.open(c))
	f.exec("insert into letters (ts, message) values (" + f.Ago(-365*24*time.Hour) + ", 'far ahead')")
	b := f.fetch(src)
	f.want(b, "far ahead")
	f.settle(src, b)
	for i := range 3 {
		f.exec(fmt.Sprintf("insert into letters (message) values ('%d')", i))
		b = f.fetch(src)
		f.want(b, fmt.Sprint(i))
		f.settle(src, b)
	}
}

// eachOnce continues to fetch while nothing is settled: every read sees the rows again.
func eachOnce(f *fixture) {
	f.Define(f, Shop)
	f.Define(f, Letters)
	for of, c := range map[string]adopted.Config{"shop (body)": shop(), "letters (message)": letters()} {
		c.Batch, c.Sweep, c.Margin = 5, time.Millisecond, 20*time.Millisecond
		table := suite.Get(f.Open(c.Table, c)).Must(f, "Open")
		src := f.subscribe(table)
		got := map[string]bool{}
		for i := range 30 {
			f.exec(fmt.Sprintf("insert into %s values ('%d')", of, i))
		}
		for again := 0; len(got) < 30 || again < 20; {
			b := suite.Get(src.Fetch(f.Context(), driver.Limit{Messages: 1000, Bytes: 1 << 20})).Must(f, "Fetch")
			if len(b.Messages) > c.Batch {
				f.Fatalf("%d rows, of which %d are one batch", len(b.Messages), c.Batch)
			}
			for _, p := range payloads(b) {
				if got[p] {
					f.Fatalf("%s came twice", p)
				}
				got[p] = true
			}
			if len(b.Messages) == 0 {
				again++
			}
		}
		f.OK(src.Close(f.Context()))
		f.OK(table.Close())
	}
}

func ties(f *fixture) {
	f.Define(f, Letters)
	var rows []string
	at := f.Ago(time.Minute)
	for n := range 50 {
		rows = append(rows, fmt.Sprintf("(%s, '%d')", at, n+1))
	}
	f.exec("insert into letters (ts, message) values " + strings.Join(rows, ", "))
	f.exec("update letters set ts = " + at)
	c := letters()
	c.Batch = 7
	src := f.subscribe(f.open(c))
	var got []string
	for len(got) < 50 {
		got = append(got, payloads(f.fetch(src))...)
	}
	for i, p := range got {
		suite.MustEqual(f, p, fmt.Sprint(i+1), "payload")
	}
}

// markedRows: the ids are not numbers, and rows of one time are more than a page.
func markedRows(f *fixture) {
	f.Define(f, Marked)
	at := f.Ago(time.Second)
	var rows []string
	for n := range 40 {
		rows = append(rows, fmt.Sprintf("('00000000-0000-4000-8000-%012d', %s, '%d')", n, at, n))
	}
	f.exec("insert into marked (id, at, body) values " + strings.Join(rows, ", "))
	c := marked()
	c.Batch = 15
	src := f.subscribe(f.open(c))
	got := map[string]int{}
	for n := 0; n < 40; {
		b := f.fetch(src)
		for _, m := range b.Messages {
			got[m.ID]++
			if m.CreatedAt.IsZero() || time.Since(m.CreatedAt) > time.Hour || time.Since(m.CreatedAt) < -time.Hour {
				f.Errorf("created at %v", m.CreatedAt)
			}
		}
		n += len(b.Messages)
		f.settle(src, b)
	}
	if len(got) != 40 || got["00000000-0000-4000-8000-000000000007"] != 1 {
		f.Errorf("got %v", got)
	}
	f.rows(0, "marked where done_at is null")
	f.rows(0, "marked where done_at < "+f.Ago(time.Hour)+" or done_at > "+f.Ago(-time.Hour))
}

// coded: the ids are texts of a fixed length, and a boolean marks.
func coded(f *fixture) {
	f.Define(f, Coded)
	src := f.subscribe(f.open(adopted.Config{Table: "coded", Columns: adopted.Columns{ID: "id", Order: []string{"at"}, Payload: "body", Status: "sent"},
		Status: adopted.Status{Pending: []adopted.Value{"false"}, Delivered: "true"}}))
	f.exec("insert into coded (id, body) values ('01ARZ3NDEKTSV4RRFFQ69G5FAV', 'a'), ('überall', 'b')")
	b := f.fetch(src)
	f.want(b, "a", "b")
	f.settle(src, b, ok, parked(1, 0))
	b = f.fetch(src)
	f.want(b, "b")
	f.settle(src, b)
	f.rows(2, "coded where sent = true")
}

func ways(f *fixture) {
	f.Define(f, Shop)
	for _, w := range []struct {
		name   string
		change func(*adopted.Config)
		check  string // a condition on the row
	}{
		{"mark", func(*adopted.Config) {}, "select count(*) from shop where body = 'mark' and done_at is not null and state = 'pending'"},
		{"status", func(c *adopted.Config) {
			c.Columns.ProcessedAt, c.Columns.Error, c.Columns.Attempts, c.Columns.Status, c.Status = "", "", "", "state", adopted.Status{Delivered: "it's sent"}
		}, "select count(*) from shop where body = 'status' and state = 'it''s sent' and done_at is null"},
		{"delete", func(c *adopted.Config) { c.Delivered = adopted.Delete }, "select 1 - count(*) from shop"},
	} {
		c := shop()
		w.change(&c)
		table := suite.Get(f.Open("sub", c)).Must(f, "Open")
		f.exec("delete from shop", "insert into shop (body) values ('"+w.name+"')")
		src := f.subscribe(table)
		b := f.fetch(src)
		if f.number(w.check) == 1 {
			f.Errorf("%s: it is settled before it was confirmed", w.name)
		}
		f.settle(src, b)
		suite.Equal(f, f.number(w.check), 1, "%s: settled", w.name)
		f.settle(src, b) // once more, as after an answer that was lost
		f.OK(src.Close(f.Context()))
		if status, err := table.Status(f.Context()); err != nil || status.Backlog != 0 || status.Settled == 0 || status.Holder != "" {
			f.Errorf("%s: status %+v, %v", w.name, status, err)
		}
		f.OK(table.Close())
	}
}

// next: the next reader gets the rows that are not settled, and the one that lost the lease changes nothing.
func next(f *fixture) {
	f.Define(f, Shop)
	for i := range 4 {
		f.exec(fmt.Sprintf("insert into shop (part, body) values ('k', '%d')", i))
	}
	c := shop()
	c.Batch, c.Margin = 2, time.Nanosecond // the mark follows at once
	table := f.open(c)
	first := suite.Get(table.Subscribe(f.Context(), driver.Subscribe{Holder: "first", Lease: 300 * time.Millisecond})).Must(f, "Subscribe")
	a, b := f.fetch(first), f.fetch(first)
	f.want(b, "2", "3")
	f.settle(first, b)
	f.OK(first.Renew(f.Context()))
	var second driver.Source
	f.Eventually("the lease is over", func() bool {
		var err error
		if second, err = f.open(c).Subscribe(f.Context(), driver.Subscribe{Holder: "second"}); err != nil && !errors.Is(err, penstock.ErrHeld) {
			f.Fatal(err)
		}
		return err == nil
	})
	f.want(f.fetch(second), "0", "1")
	f.MustBe(first.Settle(f.Context(), a.Number, driver.Settled{Batch: a}), penstock.ErrFenced, "Settle by the first")
	f.MustBe(first.Renew(f.Context()), penstock.ErrFenced, "Renew by the first")
	f.rows(2, "shop where done_at is null")
	var held *penstock.HeldError
	if _, err := table.Subscribe(f.Context(), driver.Subscribe{Holder: "third"}); !errors.As(err, &held) || held.Holder != "second" {
		f.Errorf("the lease is free: %v", err)
	}
	f.OK(second.Close(f.Context()))
	f.OK(f.subscribe(table).Close(context.Background()))
}

// lowWaterMark: the next reader begins at the mark, and finds rows before it by a sweep.
func lowWaterMark(f *fixture) {
	f.Define(f, Shop)
	c := shop()
	c.Margin, c.Delivered, c.Sweep = time.Millisecond, adopted.Delete, time.Hour
	table := f.open(c)
	src := f.subscribe(table)
	for i := range 50 {
		f.exec(fmt.Sprintf("insert into shop (body) values ('%d')", i))
		f.settle(src, f.fetch(src))
	}
	f.OK(src.Renew(f.Context()))
	f.OK(src.Close(f.Context()))
	f.exec("insert into shop (id, body) values (-7, 'before')", "insert into shop (body) values ('next')")
	c.Sweep = time.Nanosecond
	src = f.subscribe(table)
	b := f.fetch(src)
	f.want(b, "next") // and not the rows before the mark
	f.OK(src.Close(f.Context()))
	f.want(f.fetch(f.subscribe(f.open(c))), "before", "next")
}
