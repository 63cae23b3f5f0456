package storetest

import (
	"fmt"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var parkedLoadCases = slices.Concat(
	named("ParkedLoad", parkedLoadManyLines, parkedLoadOneLongKey, parkedLoadStarvesNoKey,
		parkedLoadSurvivesReclaim, parkedLoadBetweenHousekeeping),
	needing(Features{Reclaim: true}, named("ParkedLoad", parkedLoadFreesItsSpace)),
)

// A whole topic is refused: thousands of keys are parked at once.
func parkedLoadManyLines(e *env) {
	keys := testseed.Steps(2000)
	r := e.read()
	var msgs []penstock.Message
	for i := range 2 * keys {
		msgs = append(msgs, message(fmt.Sprint("key", i%keys), fmt.Sprint(i)))
	}
	e.publish(msgs...)
	c := &carrier{e: e, r: r, limit: driver.Limit{Messages: 500, Bytes: plenty.Bytes}}
	c.parkAll()
	e.wantParked(r, int64(2*keys), int64(keys), 0)
	e.publish(keyed("other", 0, 1)...)
	c.limit.Messages = 150
	c.until(2*keys + 1)
	next := make([]int, keys)
	for _, m := range c.sent {
		var i int
		if m.Key == "other" {
			continue
		}
		suite.Get(fmt.Sscan(string(m.Payload), &i)).Must(e, "a payload")
		suite.MustEqual(e, i/keys, next[i%keys], "number of %s of its key", m.Payload)
		next[i%keys]++
	}
	e.wantParked(r, 0, 0, 0)
}

func parkedLoadOneLongKey(e *env) {
	total := testseed.Steps(3000)
	r := e.read()
	msgs := keyed("k", 0, total)
	for part := range slices.Chunk(msgs, 500) {
		e.publish(part...)
	}
	c := &carrier{e: e, r: r, limit: driver.Limit{Messages: 200, Bytes: plenty.Bytes}}
	c.parkAll()
	e.wantParked(r, int64(total), 1, 0)
	e.maintain()
	c.r = r.again()
	c.limit.Messages = 70
	c.until(total)
	c.wantKey("k", payloads(msgs)...)
	e.wantParked(c.r, 0, 0, 0)
	c.r.again().want()
}

// Parked keys that are due all the time, refused again and again, leave room for what
// is new.
func parkedLoadStarvesNoKey(e *env) {
	r := e.read()
	var msgs []penstock.Message
	for i := range 50 {
		msgs = append(msgs, message(fmt.Sprint("key", i), "poison"))
	}
	e.publish(msgs...)
	c := &carrier{e: e, r: r, limit: driver.Limit{Messages: 10, Bytes: plenty.Bytes}}
	c.decide = func(m penstock.Message) driver.Verdict {
		if string(m.Payload) == "poison" {
			return driver.Verdict{Outcome: driver.Parked, Failures: failures(m, 1, "poison")}
		}
		return driver.Verdict{}
	}
	for i := range 20 {
		e.publish(message("good", fmt.Sprint("good", i)))
		e.Eventually("the new message came", func() bool {
			c.step()
			return len(c.sent) == i+1
		})
	}
	c.wantKey("good", payloads(keyed("good", 0, 20))...)
}

// Parked messages are no longer the outbox's, which frees everything around them.
func parkedLoadSurvivesReclaim(e *env) {
	rnd := e.Random(0)
	r := e.read()
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprintf("%d:%s", i, testseed.Bytes(rnd, 64<<10)))
		e.publish(message("k", want[i]))
	}
	c := &carrier{e: e, r: r, limit: driver.Limit{Messages: 10, Bytes: plenty.Bytes}}
	c.decide = func(m penstock.Message) driver.Verdict {
		if m.Key == "k" {
			return holding(m)
		}
		return driver.Verdict{}
	}
	for round := range 4 {
		e.bulk(round, 1)
		for c.step() {
		}
		e.maintain()
		e.maintain()
		c.r = c.r.again()
	}
	e.wantParked(c.r, 4, 1, 1)
	e.discard(c.r, 1)
	c.decide, c.sent = nil, nil
	c.until(4)
	c.wantKey("k", want[1:]...)
}

// Small pieces of storage come and go while keys are parked and drained.
func parkedLoadBetweenHousekeeping(e *env) {
	rnd := e.Random(0)
	c := &carrier{e: e, r: e.read(), limit: driver.Limit{Messages: 3, Bytes: plenty.Bytes}}
	refusals := map[string]int{}
	c.decide = func(m penstock.Message) driver.Verdict {
		if refusals[m.ID] > 0 {
			refusals[m.ID]--
			return refused(m, soon)
		}
		return driver.Verdict{}
	}
	want := map[string][]string{}
	total := testseed.Steps(80)
	for i := range total {
		key := fmt.Sprint("key", rnd.IntN(4))
		m := penstock.Message{ID: fmt.Sprint(i), Key: key, Payload: fmt.Appendf(nil, "%d:%s", i, testseed.Bytes(rnd, 32<<10))}
		refusals[m.ID] = max(0, rnd.IntN(6)-3)
		want[key] = append(want[key], string(m.Payload))
		e.publish(m)
		e.maintain()
		for range rnd.IntN(3) {
			c.step()
			e.maintain()
		}
		if rnd.IntN(10) == 0 {
			c.r = c.r.again()
		}
	}
	c.until(total)
	for key := range want {
		c.wantKey(key, want[key]...)
	}
	e.maintain()
	e.wantParked(c.r, 0, 0, 0)
	c.r.again().want()
}

// Wherever parked messages are, their space comes back.
func parkedLoadFreesItsSpace(e *env) {
	r := e.read()
	floor := e.outboxStatus(outbox).Bytes
	for round := range 3 {
		e.bulk(round, 4)
		c := &carrier{e: e, r: r, limit: driver.Limit{Messages: 20, Bytes: 1 << 20}}
		c.decide = func(m penstock.Message) driver.Verdict {
			if m.Attempt == 1 {
				return refused(m, soon)
			}
			return driver.Verdict{}
		}
		c.until(128)
		e.shrinks(floor)
	}
}
