package storetest

import (
	"fmt"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
)

var pagingCases = named("Paging", pagingByMessages, pagingByBytes, pagingOneMessageOverTheLimit, pagingEveryPageByAnotherReader)

func pagingByMessages(e *env) {
	backlog := messages("m", 250)
	for part := range slices.Chunk(backlog, 50) {
		e.publish(part...)
	}
	r := e.read()
	for _, n := range []int{1, 7, 1000} {
		batches := r.drain(driver.Limit{Messages: n, Bytes: plenty.Bytes})
		e.wantPayloads(flatten(batches), payloads(backlog)...)
		for _, b := range batches[:len(batches)-1] {
			if len(b.Messages) < n {
				e.Logf("a page of %d where %d were asked for and more was waiting", len(b.Messages), n)
			}
		}
		r = r.again()
	}
	r.settle(r.drain(driver.Limit{Messages: 100, Bytes: plenty.Bytes})...)
	r.again().want()
}

// The backlog is many times what the reader allows in memory.
func pagingByBytes(e *env) {
	rnd := e.Random(0)
	const total = 60
	var want []string
	for i := range total {
		m := message(fmt.Sprint("key", i%7), fmt.Sprintf("%d:%s", i, testseed.Bytes(rnd, 20_000+rnd.IntN(40_000))))
		want = append(want, string(m.Payload))
		e.publish(m)
	}
	r := e.read()
	batches := r.drain(driver.Limit{Messages: 1000, Bytes: 100_000}) // fetch checks the limit
	e.wantPayloads(flatten(batches), want...)
	r.settle(batches...)
	r.again().want()
}

func pagingOneMessageOverTheLimit(e *env) {
	rnd := e.Random(0)
	small := messages("small", 2)
	big := message("", string(testseed.Bytes(rnd, 500_000)))
	e.publish(small[0], big, small[1])
	r := e.read()
	got := flatten(r.drain(driver.Limit{Messages: 10, Bytes: 1}))
	e.wantPayloads(got, "small0", "small1", string(big.Payload))
}

// Cursors written in the middle of a backlog, one after another, with new
// messages behind it: each must be exact.
func pagingEveryPageByAnotherReader(e *env) {
	backlog := messages("m", 15)
	e.publish(backlog...)
	want := payloads(backlog)
	var got []penstock.Message
	r := e.read()
	for i := 0; ; i++ {
		b := r.fetch(two)
		if len(b.Messages) == 0 {
			break
		}
		got = append(got, b.Messages...)
		r.settle(b)
		if i < 5 {
			m := message("", fmt.Sprint("new", i))
			e.publish(m)
			want = append(want, string(m.Payload))
		}
		r = r.again()
	}
	e.wantPayloads(got, want...)
}
