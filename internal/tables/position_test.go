package tables

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
)

// Batches are settled in parts and in any order, and readers follow one another. Position and ranges hold the settled messages and no others, and each
// message that is not settled comes again, in order.
func TestCursor(t *testing.T) {
	rnd := testseed.New(t.Name(), 0)
	for round := range testseed.Steps(200) {
		var there []int64
		for seq := int64(1); seq < 60; seq++ {
			if rnd.IntN(4) > 0 {
				there = append(there, seq)
			}
		}
		settled := map[int64]bool{}
		var at Cursor
		for reader := range 4 {
			r := NewReader(nil, nil, nil, nil, driver.Subscribe{})
			r.ID, r.bySeq = 1, true
			r.Begin(at)
			var want, got []int64
			for _, seq := range there {
				if !settled[seq] {
					want = append(want, seq)
				}
			}
			var open []*Part
			for range 12 {
				p := &Page{Limit: driver.Limit{Messages: 1 + rnd.IntN(9), Bytes: 1 << 20}, bySeq: true}
				if err := r.ReadOn(p, rowsOf(p, there)); err != nil {
					t.Fatal(err)
				}
				b := r.register(p)
				for i := range b.Messages {
					got = append(got, b.Messages[i].Seq)
					open = append(open, &Part{Msg: &b.Messages[i], Flight: p.flights[i]})
				}
				rnd.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
				parts := open[:rnd.IntN(len(open)+1)]
				open = open[len(parts):]
				at = r.Cursor(parts)
				r.open = r.open.Without(fresh(parts))
				for _, part := range parts {
					settled[part.Msg.Seq] = true
				}
				for _, seq := range there {
					if is := seq <= at.Position || at.Ahead.Has(seq); is != settled[seq] {
						t.Fatalf("PENSTOCK_SEED=%d, round %d, reader %d: %d is settled: %t; position %d, ahead %v", testseed.Seed(), round, reader, seq, settled[seq], at.Position, at.Ahead)
					}
				}
			}
			if !slices.Equal(got, want[:len(got)]) {
				t.Fatalf("PENSTOCK_SEED=%d, round %d, reader %d: got %v, want %v", testseed.Seed(), round, reader, got, want)
			}
		}
	}
}

// rowsOf reads the messages with these numbers.
func rowsOf(p *Page, there []int64) func(after int64, row func(Scan) error) error {
	return func(after int64, row func(Scan) error) error {
		n := 0
		for _, seq := range there {
			if seq <= after || n == p.Most() {
				continue
			}
			n++
			if err := row(func(dest ...any) error {
				*dest[1].(*time.Time), *dest[2].(*int64), *dest[7].(*[]byte) = time.Now(), seq, fmt.Append(nil, seq)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}
}
