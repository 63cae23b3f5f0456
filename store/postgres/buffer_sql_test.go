package postgres_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

// The buffer of database/sql is store/sqlite's, with statements of this store.
func TestBufferSQL(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	db, err := sql.Open("pgx", f.URL)
	f.Must(err)
	defer func() { _ = db.Close() }()
	begin := func() *postgres.BufferedSQLTx {
		tx, err := db.BeginTx(f.Ctx, nil)
		f.Must(err)
		return postgres.BufferSQL(tx, penstock.BufferOptions{Rows: 1500})
	}
	orders, queue := f.store.Outbox("orders"), f.store.Queue("jobs")
	tx := begin()
	var later penstock.PendingJobs
	for i := range 2000 { // two flushes, of which one has more than fit into a statement
		f.Must(orders.PublishSQL(f.Ctx, tx, penstock.Message{Payload: fmt.Append(nil, i)}))
	}
	later, err = tx.Enqueue(f.Ctx, queue, texts("a", "b")...)
	f.Must(err)
	now, err := queue.EnqueueSQL(f.Ctx, tx, texts("c")...)
	f.Must(err)
	made, err := later.Enqueued(f.Ctx)
	f.Must(err)
	if len(made) != 2 || len(now) != 1 || made[1].ID <= made[0].ID || now[0].ID <= made[1].ID {
		t.Errorf("ids %v and %v", made, now)
	}
	if got := tx.Stats(); got.Writes != 2003 || fmt.Sprint(got.Flushes) != fmt.Sprint(flushes{penstock.FlushFull: 1, penstock.FlushIDs: 1}) {
		t.Errorf("stats %+v", got)
	}
	f.Must(tx.Commit())
	if n := f.Number("select count(*) from (select payload, row_number() over (order by seq) - 1 as n from penstock.orders) o where convert_from(payload, 'UTF8') = n::text"); n != 2000 {
		t.Errorf("%d of 2000 messages are where they belong", n)
	}

	tx = begin()
	f.Must(orders.PublishSQL(f.Ctx, tx, penstock.Message{}))
	f.Must(f.store.Outbox("nowhere").PublishSQL(f.Ctx, tx, penstock.Message{}))
	if err := tx.Commit(); !errors.Is(err, penstock.ErrNoOutbox) {
		t.Errorf("got %v", err)
	}
	if n := f.Number("select count(*) from penstock.orders"); n != 2000 {
		t.Errorf("there are %d messages", n)
	}
}
