package inboxtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

// Consumers whose database goes away in the middle of their work, twice, have done each message once in the end, in its key's
// order, whatever the broker delivers again.
func databaseAway(f *fixture) {
	f.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	const keys, each, consumers = 8, 40, 6
	process, proxy := f.Away()
	f.Cleanup(proxy.Resume)
	type delivery struct {
		penstock.Message
		at float64
	}
	var todo []delivery
	r := testseed.New(f.Name(), 0)
	for k := range keys {
		for n, m := range chain(fmt.Sprint(k), each) {
			todo = append(todo, delivery{m, float64(n) + 12*r.Float64()})
		}
	}
	slices.SortFunc(todo, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
	queue := make(chan penstock.Message, 2*len(todo))
	deliver := func(part int) {
		for _, d := range todo[part*len(todo)/3 : (part+1)*len(todo)/3] {
			queue <- d.Message
		}
	}
	deliver(0)
	var failed, done atomic.Int64
	var working, acked sync.WaitGroup
	acked.Add(len(todo))
	for range consumers {
		working.Go(func() {
			for m := range queue {
				call, cancel := context.WithTimeout(f.Context(), time.Minute)
				err := process(call, consumer, m, time.Hour, f.effect)
				cancel()
				if err == nil {
					done.Add(1)
					acked.Done()
					continue
				}
				if errors.Is(err, context.DeadlineExceeded) {
					f.Error(err)
				}
				failed.Add(1)
				queue <- m // it was not acknowledged
			}
		})
	}
	eventually := func(what string, ok func() bool) {
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				f.Fatalf("not within a minute: %s", what)
			}
		}
	}
	for part := range 2 {
		eventually("they work", func() bool { return int(done.Load()) > (2*part+1)*len(todo)/6 })
		before := failed.Load()
		proxy.Refuse()
		deliver(part + 1)
		eventually("all have met it, many times", func() bool { return failed.Load() > before+20*consumers })
		proxy.Resume()
	}
	acked.Wait()
	close(queue)
	working.Wait()
	f.wantEffects(keys, each)
	inboxes := suite.Get(f.Store.Inboxes(f.Context())).Must(f, "Inboxes")
	suite.Equal(f, inboxes[0].Held, 0, "messages that are held")
}
