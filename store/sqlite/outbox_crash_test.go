package sqlite_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/sqlite"
)

// Two processes write business transactions and are killed -9 in the middle of
// it while this one reads, settles and reclaims. Whatever was committed is
// delivered, nothing else is, and the file is whole.
func TestKilledWhilePublishing(t *testing.T) {
	testseed.Soak(t)
	path, s, app := newFile(t, sqlite.Options{})
	mustExec(t, app, `create table orders (id integer primary key autoincrement, total integer)`)
	ctx := t.Context()
	src := subscribe(t, s, "billing")

	var acknowledged, delivered []string
	relay := func() {
		msgs, batches := fetchAll(t, src)
		for _, m := range msgs {
			delivered = append(delivered, string(m.Payload))
		}
		if err := storetest.Settle(ctx, src, batches...); err != nil {
			t.Fatal(err)
		}
		if err := s.Maintain(ctx, "orders"); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		type life struct {
			lines []string
			err   error
		}
		lives := make(chan life, 2)
		for i := range 2 {
			c := start(t, childPublish, path)
			go func() {
				lines, err := c.killAfter(100 * (i + 1))
				lives <- life{lines, err}
			}()
		}
		for range 2 {
			relaying := true
			for relaying {
				select {
				case l := <-lives:
					if l.err != nil {
						t.Fatal(l.err)
					}
					acknowledged = append(acknowledged, l.lines...)
					relaying = false
				default:
					relay()
				}
			}
		}
		if round == 1 { // and the reader begins anew
			if err := src.Close(ctx); err != nil {
				t.Fatal(err)
			}
			src = subscribe(t, s, "billing")
		}
	}
	relay()

	if check := scan[string](t, app, `pragma integrity_check`); check != "ok" {
		t.Errorf("integrity_check: %s", check)
	}
	rows, err := app.Query(`select id from orders order by id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var committed []string
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		committed = append(committed, strconv.FormatInt(id, 10))
	}
	if !slices.Equal(delivered, committed) {
		t.Errorf("%d orders were committed, %d delivered, or not in the order of commits", len(committed), len(delivered))
	}
	for _, a := range acknowledged {
		if !slices.Contains(committed, a) {
			t.Errorf("order %s was committed before the kill and is gone", a)
		}
	}
}
