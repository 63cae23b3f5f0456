package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/memory"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(testing.TB) storetest.Instance {
			s := memory.New(memory.Options{})
			counters := &counters{rows: map[string]*counter{}}
			return storetest.Instance{
				Store: s,
				Begin: func(ctx context.Context) (storetest.Tx, error) {
					t, err := s.Begin(ctx)
					return &tx{Tx: t, counters: counters, mine: map[string]*counter{}}, err
				},
				Another: func(testing.TB) driver.Store { return s.Another() },
				Pin:     func(testing.TB) func() { return func() {} }, // nothing to hold back
			}
		},
		Features: storetest.Features{ConcurrentWriters: true, Reclaim: true, SmallPieces: true, Snapshots: true},
	})
}

// counters is the business's own table: rows that a transaction locks.
type counters struct {
	sync.Mutex
	rows map[string]*counter
}

type counter struct {
	lock chan struct{} // holds a token while a transaction has the row
	n    int64
}

func (c *counters) row(name string) *counter {
	c.Lock()
	defer c.Unlock()
	if c.rows[name] == nil {
		c.rows[name] = &counter{lock: make(chan struct{}, 1)}
	}
	return c.rows[name]
}

// tx adds counters to the store's transaction.
type tx struct {
	*memory.Tx
	counters *counters
	mine     map[string]*counter
	added    map[string]int64
}

func (t *tx) Count(ctx context.Context, name string) (int64, error) {
	row := t.counters.row(name)
	if t.mine[name] == nil {
		select {
		case row.lock <- struct{}{}:
			t.mine[name] = row
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for counter %q: %w", name, ctx.Err())
		}
	}
	if t.added == nil {
		t.added = map[string]int64{}
	}
	t.added[name]++
	return row.n + t.added[name], nil
}

func (t *tx) Commit(ctx context.Context) error {
	err := t.Tx.Commit(ctx)
	if err == nil {
		for name, row := range t.mine {
			row.n += t.added[name]
		}
		t.release()
	}
	return err
}

func (t *tx) Rollback(ctx context.Context) error {
	t.release()
	return t.Tx.Rollback(ctx)
}

func (t *tx) release() {
	for name, row := range t.mine {
		<-row.lock
		delete(t.mine, name)
	}
}
