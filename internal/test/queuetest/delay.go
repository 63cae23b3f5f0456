package queuetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
)

var delayCases = named("Delay", delayNotBeforeItsTime, delayManyDelays, delayDelayedAndRolledBack)

func after(d time.Duration, payload string) penstock.NewJob {
	return penstock.NewJob{NotBefore: time.Now().Add(d), Payload: []byte(payload)}
}

func delayNotBeforeItsTime(e *env) {
	soon := after(200*time.Millisecond, "soon")
	e.enqueue(after(time.Hour, "hour"), soon, after(-time.Hour, "past"), job("now"))
	var got []string
	e.eventually("all that is due has run", func() bool {
		claimed := e.claim(4)
		if early := time.Until(soon.NotBefore); early > 0 && slices.Contains(names(claimed), "soon") {
			e.Errorf("a job with a delay of 200 ms ran %s before its time", early)
		}
		got = append(got, names(claimed)...)
		e.ack(claimed...)
		return len(got) >= 3
	})
	e.sameSet(got, []string{"past", "now", "soon"})
	e.maintain()
	e.want()
	if s := e.status(); s.Delayed != 1 || s.Ready != 0 {
		e.Errorf("the status counts %d delayed and %d ready jobs, want 1 and 0", s.Delayed, s.Ready)
	}
}

func delayManyDelays(e *env) {
	rnd := e.Random(0)
	var want []string
	for i := range 100 {
		name := fmt.Sprint("d", i)
		j := after(time.Duration(rnd.IntN(300))*time.Millisecond, name)
		j.Key = []string{"", "a"}[rnd.IntN(2)]
		e.enqueue(j)
		want = append(want, name)
	}
	var got []string
	e.eventually("all jobs have run", func() bool {
		claimed := e.claim(10)
		got = append(got, names(claimed)...)
		e.ack(claimed...)
		return len(got) >= len(want)
	})
	e.sameSet(got, want)
}

func delayDelayedAndRolledBack(e *env) {
	t := e.begin()
	t.enqueue(after(time.Millisecond, "never"))
	t.Rollback()
	t = e.begin()
	t.enqueue(after(time.Millisecond, "a"))
	t.Commit()
	e.ack(e.collect("a")...)
	e.maintain()
	e.want()
}
