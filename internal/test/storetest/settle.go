package storetest

import (
	"fmt"
	"sync"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var settleCases = named("Settle", settleMixedVerdictsApplyTogether, settleSettleWhileFetching)

// two is a limit that makes several batches of a few messages.
var two = driver.Limit{Messages: 2, Bytes: plenty.Bytes}

// Several batches, one of them delivered whole, in one call.
func settleMixedVerdictsApplyTogether(e *env) {
	e.publish(messages("m", 6)...)
	r := e.read()
	batches := r.drain(two)
	r.want() // each comes once
	var died []string
	one := func(n int) driver.Settled {
		second := string(batches[n].Messages[1].Payload)
		died = append(died, second)
		return driver.Settled{Batch: batches[n], Verdicts: []driver.Verdict{{}, dead("refused " + second)}}
	}
	e.Must(r.Settle(e.ctx, one(0), driver.Settled{Batch: batches[1]}, one(2)), "Settle")
	r = r.again()
	r.want()
	deadLetters := e.deadLetters(r)
	e.wantPayloads(deadMessages(deadLetters), died...)
	for _, l := range deadLetters {
		suite.Equal(e, l.Err(), "refused "+string(l.Message.Payload), "error of the dead letter %s", l.Message.Payload)
	}
	if s := e.subscriptionStatus(r.req); s.Settled != 6 || s.DeadLetters != 2 || s.Backlog != 0 {
		e.Errorf("status: settled %d, dead letters %d, backlog %d, want 6, 2, 0", s.Settled, s.DeadLetters, s.Backlog)
	}
}

// Settle and Renew run at the same time as Fetch, as in the relay.
func settleSettleWhileFetching(e *env) {
	const total = 200
	r := e.read()
	settle := make(chan driver.Batch, total)
	end := sync.OnceFunc(func() { close(settle) })
	defer end()
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			for b := range settle {
				if err := r.Settle(e.ctx, driver.Settled{Batch: b}); err != nil {
					return fmt.Errorf("settle: %w", err)
				}
				if err := r.Renew(e.ctx); err != nil {
					return fmt.Errorf("renew: %w", err)
				}
			}
			return nil
		}()
	}()
	var got []penstock.Message
	for i := range total / 4 {
		e.publish(messages(fmt.Sprint("m", i, "-"), 4)...)
		for _, b := range r.drain(driver.Limit{Messages: 3, Bytes: plenty.Bytes}) {
			got = append(got, b.Messages...)
			settle <- b
		}
	}
	end()
	e.Must(<-done, "the settling goroutine")
	suite.MustEqual(e, len(got), total, "messages")
	r.again().want()
}
