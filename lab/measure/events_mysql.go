package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/mysql"
)

// message is a way to fetch the next event, as naive and the others: from an outbox.
const message = "outbox"

// mysqlEvents are the same events in a table, in a queue and in an outbox of MySQL. Rows fetched from the last
// two are consumed.
type mysqlEvents struct {
	Database
	store         *mysql.Store
	sql           statements
	queue, outbox string
	src           driver.Source
	last          string // the timestamp of the last event consumed
	left          [2]int // what is in the queue and in the outbox
}

func newMySQLEvents(db Database, name string) *mysqlEvents {
	e := &mysqlEvents{Database: db, store: db.mysql(), queue: db.Name + "_" + name + "_q", outbox: db.Name + "_" + name + "_o"}
	words := db.words(db.Name + "_" + name + "_events")
	words["queue"], words["outbox"] = quotedMySQL("queue_"+e.queue), quotedMySQL("outbox_"+e.outbox)
	e.sql = db.read("events", words)
	return e
}

func (e *mysqlEvents) create(s *session) error {
	_, err := s.do("making the events", e.sql["create"])
	if err == nil {
		_, err = s.do("making the events", e.sql["index"])
	}
	if err == nil {
		err = e.store.CreateQueue(s.ctx, e.queue, penstock.FIFO)
	}
	if err == nil {
		err = e.store.CreateOutbox(s.ctx, e.outbox)
	}
	if err == nil {
		e.src, err = e.store.Subscribe(s.ctx, driver.Subscribe{Outbox: e.outbox, Subscription: subscription, Holder: holder, Lease: time.Hour})
	}
	if err != nil {
		return errors.Join(err, e.remove(s.ctx))
	}
	// The storage's counts of tombstones are of sessions that ask for them. No such variable: no MyRocks.
	_, _ = s.do("counting tombstones", "set session rocksdb_perf_context_level = 2")
	return nil
}

func (e *mysqlEvents) remove(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	table := contender{Database: e.Database, label: "the events", sql: e.sql}
	err := table.remove(ctx)
	if e.src != nil {
		err = errors.Join(err, e.src.Close(ctx))
	}
	for _, dropped := range []error{e.store.DropQueue(ctx, e.queue), e.store.DropOutbox(ctx, e.outbox)} {
		if !errors.Is(dropped, penstock.ErrNoQueue) && !errors.Is(dropped, penstock.ErrNoOutbox) {
			err = errors.Join(err, dropped)
		}
	}
	return err
}

func (e *mysqlEvents) fill(s *session, events int) error {
	for from := 1; from <= events; from += fillChunk {
		n := min(fillChunk, events-from+1)
		if _, err := s.do("writing events", e.sql["fill"], from, from, from, n); err != nil {
			return err
		}
		for _, name := range []string{"fill_queue", "fill_outbox"} {
			if _, err := s.do("writing events", e.sql[name], from, from, n); err != nil {
				return err
			}
		}
	}
	e.left = [2]int{events, events}
	if err := e.remember(s, 0); err != nil {
		return err
	}
	for _, method := range []string{next, message} { // a fresh one is also in use
		if _, err := e.fetch(s, method); err != nil {
			return err
		}
	}
	return nil
}

func (e *mysqlEvents) remember(s *session, id int) error {
	return s.value("reading the last timestamp", e.sql["last"], &e.last, id)
}

// consumeFirst consumes the first n events: of the table with the published DELETE, of the others as a worker and a relay do.
func (e *mysqlEvents) consumeFirst(s *session, n int) error {
	if err := e.remember(s, n); err != nil {
		return err
	}
	left := e.left[0] - n
	for e.left[0] > left {
		if err := e.take(s, min(e.left[0]-left, 1000)); err != nil {
			return err
		}
	}
	for left = e.left[1] - n; e.left[1] > left; {
		if err := e.settle(s, min(e.left[1]-left, 1000)); err != nil {
			return err
		}
	}
	// Last, since compaction comes by and by.
	_, err := s.do("deleting events", e.sql["delete_first"], n)
	return err
}

func (e *mysqlEvents) take(s *session, n int) error {
	q := e.store.Queue(e.queue)
	jobs, err := q.Claim(s.ctx, driver.Claim{Jobs: n, Lease: time.Minute})
	if err != nil || len(jobs) == 0 {
		return errors.Join(err, fmt.Errorf("%d of %d jobs came", len(jobs), n))
	}
	leases := make([]int64, len(jobs))
	for i, j := range jobs {
		leases[i] = j.Lease
	}
	_, err = q.Ack(s.ctx, leases...)
	e.left[0] -= len(jobs)
	return err
}

func (e *mysqlEvents) settle(s *session, n int) error {
	b, err := e.src.Fetch(s.ctx, driver.Limit{Messages: n, Bytes: 8 << 20})
	if err != nil || len(b.Messages) == 0 {
		return errors.Join(err, fmt.Errorf("%d of %d messages came", len(b.Messages), n))
	}
	e.left[1] -= len(b.Messages)
	return e.src.Settle(s.ctx, b.Number, driver.Settled{Batch: b})
}

// deleteScattered deletes every other event behind the first n.
func (e *mysqlEvents) deleteScattered(s *session, n int) error {
	if _, err := s.do("deleting every other event", e.sql["delete_scattered"], n); err != nil {
		return err
	}
	for i, name := range []string{"delete_scattered_jobs", "delete_scattered_messages"} {
		tag, err := s.do("deleting every other event", e.sql[name], n)
		if err != nil {
			return err
		}
		e.left[i] -= int(tag.RowsAffected())
	}
	return nil
}

func (e *mysqlEvents) fetch(s *session, method string) (ms float64, err error) {
	start := time.Now()
	var id int64
	switch method {
	case naive:
		err = s.value(method, e.sql[method], &id)
	case lastTS:
		err = s.value(method, e.sql[method], &id, e.last)
	case next:
		err = e.take(s, 1)
	case message:
		err = e.settle(s, 1)
	}
	return time.Since(start).Seconds() * 1000, err
}

// explain fetches one, and returns the counts of RocksDB for it.
func (e *mysqlEvents) explain(s *session, method string) (p Pages, ms float64, err error) {
	before, err := e.store.RocksDBCalls(s.ctx)
	if err != nil {
		return p, 0, err
	}
	var tombstones, after int64
	_ = s.value("counting tombstones", e.sql["tombstones"], &tombstones)
	if ms, err = e.fetch(s, method); err != nil {
		return p, ms, err
	}
	_ = s.value("counting tombstones", e.sql["tombstones"], &after)
	calls, err := e.store.RocksDBCalls(s.ctx)
	if calls = calls.Since(before); calls != (mysql.RocksDBCalls{}) {
		p.RocksDB = &FetchCalls{RocksDBCalls: calls}
		if method == naive || method == lastTS {
			n := after - tombstones
			p.RocksDB.Tombstones = &n
		}
	}
	return p, ms, err
}
