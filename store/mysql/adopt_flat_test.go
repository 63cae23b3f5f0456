package mysql_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/test/adopttest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// A row of an adopted table takes few of RocksDB's steps, however many were deleted, or marked.
func adoptIsFlat(t *testing.T, m *testserver.MariaDB) {
	r := newRocks(t, m)
	r.db.SetMaxOpenConns(1) // which has penstock as its database
	r.exec("use penstock")
	r.store()
	for _, name := range []string{adopttest.Letters, adopttest.Shop} {
		for _, statement := range others[name] {
			r.exec(statement + " engine = RocksDB")
		}
	}
	for insert, c := range map[string]mysql.AdoptConfig{
		"insert into penstock.letters (message) select 'm' from penstock.seq_1_to_50": {Preset: "message", Table: "penstock.letters"},
		"insert into penstock.shop (part, body) select 'k', 'm' from penstock.seq_1_to_50": {Table: "penstock.shop", Delivered: "mark",
			Columns: adopted.Columns{ID: "id", Order: []string{"at"}, Key: "part", Payload: "body", ProcessedAt: "done_at"}},
	} {
		c.Margin, c.Sweep = time.Millisecond, time.Hour
		table, err := mysql.Adopt(r.url, mysql.Options{Engine: "RocksDB"}, c.Table, c)
		r.must(err)
		src, err := table.Subscribe(t.Context(), driver.Subscribe{Holder: "test"})
		r.must(err)
		pages := testseed.Steps(80)
		relay := func() {
			for range pages {
				r.exec(insert)
				for n := 0; n < 50; {
					b, err := src.Fetch(t.Context(), driver.Limit{Messages: 50, Bytes: 1 << 20})
					r.must(err)
					n += len(b.Messages)
					r.must(src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
				}
			}
		}
		relay()
		steps, seeks := r.per(50*pages, relay)
		t.Logf("%s: %.1f steps a row, %.1f seeks", c.Table, steps, seeks)
		if steps > 4 { // DESIGN.md: 2 and 3, and less than one for its part of a page
			t.Errorf("%s: a row takes %.1f steps, at most 4 are promised", c.Table, steps)
		}
		r.must(src.Close(t.Context()))
		r.must(table.Close())
	}
}
