package queuetest

import (
	"slices"
	"time"

	"github.com/penstock/penstock"
)

var delayCases = named("Delay", delayNotBeforeItsTime)

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
	e.wantCounts(counts{delayed: 1})
}
