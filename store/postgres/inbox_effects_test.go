package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/inorder"
)

func sortDeliveries(todo []delivery) {
	slices.SortFunc(todo, func(a, b delivery) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
}

type effect struct {
	Key, ID string
	Place   int
	Gap     bool
	Missing *string
	Late    bool
}

// checkEffects compares what consumers did, in the order in which they did it, with what
// came.
func (f *inboxFixture) checkEffects(t *testing.T, todo []delivery, absent map[string]bool) {
	rows, err := f.Conn.Query(f.Ctx, "select key, id, place, gap, missing, late from effects order by n")
	f.Must(err)
	effects, err := pgx.CollectRows(rows, pgx.RowToStructByPos[effect])
	f.Must(err)
	came, done, instead, parts := map[string]bool{}, map[string]bool{}, map[string]*string{}, map[string]inorder.Parts{}
	for _, d := range todo {
		came[d.ID] = true
	}
	gaps := 0
	for _, e := range effects {
		done[e.ID] = true // once: it is the table's primary key
		if e.Gap {
			gaps++
			if done[*e.Missing] || *e.Missing != fmt.Sprintf("%s-%d", e.Key, e.Place-1) {
				t.Errorf("%s was reported missing before %s", *e.Missing, e.ID)
			}
			if instead[*e.Missing] == nil {
				instead[*e.Missing] = &e.ID
			}
		}
		if (e.Gap || e.Late) && !absent[e.Key] {
			t.Errorf("%+v, but nothing of its key is missing", e)
		}
		m, previous := penstock.Released{Message: penstock.Message{ID: e.ID}, Gap: e.Gap}, ""
		if e.Place > 0 {
			previous = fmt.Sprintf("%s-%d", e.Key, e.Place-1)
		}
		before := parts[e.Key]
		if parts[e.Key] = before.HandOver(&m, previous, instead[e.ID]); e.Late != m.Late {
			t.Errorf("%s is late: %v, after %q; it was reported missing: %v", e.ID, e.Late, before, instead[e.ID] != nil)
		}
	}
	for id := range came {
		if !done[id] {
			t.Errorf("%s came and was never processed", id)
		}
	}
	if len(done) != len(came) {
		t.Errorf("%d messages were processed, %d came", len(done), len(came))
	}
	t.Logf("%d deliveries of %d messages, %d gaps", len(todo), len(came), gaps)
	if gaps == 0 {
		t.Error("there was no gap to report")
	}
	if held := f.Number("select held from penstock.inboxes()"); held != 0 {
		t.Errorf("%d messages are still held", held)
	}
}
