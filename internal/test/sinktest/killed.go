package sinktest

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/relay"
)

// killedAgainAndAgain: a relay delivers while the broker is killed. No message is lost, no key is out of order, and no
// message is refused. A message may come again, with those of its key behind it. The short form kills once, because some
// brokers take long to start: RabbitMQ and Kafka seconds, and on a busy machine minutes. So the long form kills for fifteen
// seconds and three times at least, and with PENSTOCK_ROUNDS=8 for two minutes and 24 times.
func killedAgainAndAgain(e *env) {
	const keys, most, between = 10, 100, 50 // messages under way, and confirmed before the next kill
	const round, pace, fewest = 15 * time.Second, 2 * time.Second, 3
	store, ctx := sqlitetest.New(e.T), e.patient()
	suite.OK(e, store.CreateOutbox(ctx, "orders"))
	var stats relay.Counters
	r, err := relay.New(store, "orders", "sink", e.open(), relay.Options{Logger: slog.New(slog.DiscardHandler), Observer: &stats})
	suite.OK(e, err)
	done := make(chan error, 1)
	go func() { done <- r.Run(e.Context()) }()

	published := int64(0)
	deliver := func(until int64, more bool) {
		for deadline := time.Now().Add(Patience); stats.Delivered.Load() < until; {
			if time.Now().After(deadline) {
				e.Fatalf("%d of %d messages are delivered", stats.Delivered.Load(), published)
			}
			if !more || published-stats.Delivered.Load() >= most {
				time.Sleep(time.Millisecond)
				continue
			}
			msgs := make([]penstock.Message, keys)
			for k := range msgs {
				msgs[k] = penstock.Message{Key: fmt.Sprintf("key-%d", k), Topic: e.Topics[k%len(e.Topics)], Payload: fmt.Appendf(nil, "key-%d %d", k, published/keys)}
			}
			suite.OK(e, store.Publish(e.Context(), "orders", msgs...))
			published += keys
		}
	}
	kills := 0
	again := func(since time.Time) bool {
		rounds := testseed.Rounds()
		return kills == 0 || testseed.Long() && (kills < rounds*fewest || time.Since(since) < time.Duration(rounds)*round)
	}
	for start := time.Now(); again(start); kills++ {
		time.Sleep(time.Until(start.Add(time.Duration(kills) * pace))) // some emulators take long to give many messages back
		deliver(stats.Delivered.Load()+between, true)
		e.Restart(e.T)
	}
	deliver(published, false)
	r.Drain()
	suite.OK(e, <-done)

	next, duplicates := map[string]int{}, 0
	for _, m := range e.Drain(e.T, int(published)) {
		key, number, _ := strings.Cut(string(m.Payload), " ")
		n, err := strconv.Atoi(number)
		if err != nil || key != m.Key || n > next[key] {
			e.Fatalf("%q of %q arrived; the next is %d", m.Payload, m.Key, next[key])
		}
		if n < next[key] {
			duplicates++
		}
		next[key] = n + 1
	}
	for k := range keys {
		suite.Equal(e, int64(next[fmt.Sprint("key-", k)]), published/keys, "messages of key-%d", k)
	}
	if n := stats.ParkedMessages.Load() + stats.DeadLetters.Load(); n > 0 {
		e.Errorf("%d messages were refused", n)
	}
	e.Logf("%d messages, killed %d times, %d came again", published, kills, duplicates)
}
