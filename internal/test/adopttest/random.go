package adopttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

// randomUse has writers that take turns by key, commit late and roll back. A reader parks messages, is replaced, and forgets its batches. Each key
// arrives complete and in order.
func randomUse(f *fixture) {
	f.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	f.Define(f, Shop)
	f.Define(f, Counters)
	const keys, writers = 6, 6
	for k := range keys {
		f.exec(fmt.Sprintf("insert into counters (name, n) values ('%d', 0)", k))
	}
	steps := testseed.Steps(120)
	var over atomic.Int32
	var writing sync.WaitGroup
	for w := range writers {
		r := testseed.New(f.Name(), w)
		writing.Go(func() {
			defer over.Add(1)
			for range steps {
				if err := f.write(r, keys); err != nil {
					f.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	defer writing.Wait()
	r := testseed.New(f.Name(), writers)
	c := shop()
	c.Sweep, c.Batch = 50*time.Millisecond, 20
	if r.IntN(2) == 0 {
		c.Delivered = adopted.Delete
	}
	if !f.IDsGrow || r.IntN(2) == 0 {
		c.Columns.Order = []string{"at"}
	}
	m := &reader{f: f, r: r, config: c, last: map[string]int{}}
	m.begin()
	f.Eventually("all is delivered", func() bool {
		m.step()
		return int(over.Load()) == writers && f.number("select count(*) from shop where done_at is null") == 0
	})
	for k := range keys {
		suite.Equal(f, m.last[fmt.Sprint(k)], f.number(fmt.Sprintf("select n from counters where name = '%d'", k)), "of key %d, as counted", k)
	}
}

// write writes the next of some keys in a transaction.
func (f *fixture) write(r *rand.Rand, keys int) error {
	ctx := f.Context()
	tx, err := f.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for k := r.IntN(keys); k < keys && r.IntN(3) > 0; k += 1 + r.IntN(keys) {
		if err := tx.Exec(ctx, fmt.Sprintf("update counters set n = n + 1 where name = '%d'", k)); err != nil {
			return err
		}
		n, err := tx.Number(ctx, fmt.Sprintf("select n from counters where name = '%d'", k))
		if err != nil {
			return err
		}
		if err := tx.Exec(ctx, fmt.Sprintf("insert into shop (part, body) values ('%d', '%d')", k, n)); err != nil {
			return err
		}
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		}
	}
	if r.IntN(5) == 0 {
		return tx.Rollback()
	}
	return tx.Commit()
}

// reader is the relay's side of a source.
type reader struct {
	f      *fixture
	r      *rand.Rand
	config adopted.Config
	close  func()
	src    driver.Source
	open   []driver.Batch
	last   map[string]int // that came of a key
}

func (m *reader) begin() {
	table, err := m.f.Open("sub", m.config)
	m.f.OK(err)
	m.src, err = table.Subscribe(m.f.Context(), driver.Subscribe{Holder: "test"})
	m.f.OK(err)
	m.open, m.close = nil, func() {
		_ = m.src.Close(context.Background())
		_ = table.Close()
	}
}

func (m *reader) step() {
	ctx := m.f.Context()
	switch m.r.IntN(12) {
	case 0: // another takes over
		m.close()
		m.begin()
	case 1:
		m.f.OK(m.src.Renew(ctx))
	default:
		b, err := m.src.Fetch(ctx, driver.Limit{Messages: 1 + m.r.IntN(40), Bytes: 1 << 20})
		m.f.OK(err)
		if len(b.Messages) > 0 {
			m.open = append(m.open, b)
		}
	}
	for len(m.open) > m.r.IntN(3) {
		b := m.open[0]
		m.open = m.open[1:]
		verdicts := m.verdicts(b)
		if err := storetest.Settle(ctx, m.src, driver.Settled{Batch: b, Verdicts: verdicts}); err != nil && !errors.Is(err, penstock.ErrFenced) {
			m.f.Fatal(err)
		}
	}
}

// verdicts delivers a batch but for refused messages, and those behind them.
func (m *reader) verdicts(b driver.Batch) []driver.Verdict {
	verdicts := make([]driver.Verdict, len(b.Messages))
	refused := map[string]bool{}
	for i, msg := range b.Messages {
		if b.Order(i) == driver.BehindParked || refused[msg.Key] {
			verdicts[i], refused[msg.Key] = behind, true
			m.parks(msg.Key)
			continue
		}
		if m.r.IntN(10) == 0 {
			verdicts[i], refused[msg.Key] = parked(msg.Attempt, time.Duration(m.r.IntN(20))*time.Millisecond), true
			m.parks(msg.Key)
			continue
		}
		var n int
		_, _ = fmt.Sscan(string(msg.Payload), &n)
		if n > m.last[msg.Key]+1 {
			m.f.Fatalf("key %s: %d came after %d", msg.Key, n, m.last[msg.Key])
		}
		m.last[msg.Key] = max(n, m.last[msg.Key])
	}
	return verdicts
}

// parks notifies its batches that were fetched before something of the key was parked.
func (m *reader) parks(key string) {
	for i := range m.open {
		later := &m.open[i]
		for j := range later.Messages {
			if later.Messages[j].Key == key {
				if later.KeyOrder == nil {
					later.KeyOrder = make([]driver.KeyOrder, len(later.Messages))
				}
				later.KeyOrder[j] = driver.BehindParked
			}
		}
	}
}
