package queuetest

import (
	"fmt"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/suite"
)

var orderCases = slices.Concat(
	named("Order", orderFIFO, orderPrioritiesFirst),
	[]testCase{
		{Name: "LIFO", Run: lifoArrivals, Other: true},
		{Name: "PrioritiesFirstLIFO", Run: prioritiesLIFO, Other: true},
	},
)

// sameSet fails the test unless both have the same strings.
func (e *env) sameSet(got, want []string) {
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	suite.MustEqual(e, got, want, "both sets")
}

func orderFIFO(e *env) {
	var want, got []string
	for i := range 10 {
		batch := jobs(fmt.Sprint("b", i, "-"), 1+i)
		for _, j := range batch {
			want = append(want, string(j.Payload))
		}
		e.enqueue(batch...)
		claimed := e.claim(3)
		got = append(got, names(claimed)...)
		e.ack(claimed...)
		e.maintain()
	}
	for claimed := e.claim(7); len(claimed) > 0; claimed = e.claim(7) {
		got = append(got, names(claimed)...)
		e.ack(claimed...)
	}
	suite.MustEqual(e, got, want, "claimed")
}

// New jobs on top of a backlog go first, and the backlog is still there.
func lifoArrivals(e *env) {
	e.enqueue(jobs("old", 50)...)
	for i := range 20 {
		e.enqueue(job(fmt.Sprint("x", i)), job(fmt.Sprint("y", i)))
		claimed := e.claim(3)
		e.same(claimed, fmt.Sprint("y", i), fmt.Sprint("x", i), fmt.Sprint("old", 49-i))
		e.ack(claimed...)
		e.maintain()
	}
	var rest []string
	for i := 29; i >= 0; i-- {
		rest = append(rest, fmt.Sprint("old", i))
	}
	e.ack(e.want(rest...)...)
	e.want()
}

func withPriority(priority int, payload string) penstock.NewJob {
	return penstock.NewJob{Priority: priority, Payload: []byte(payload)}
}

func orderPrioritiesFirst(e *env) {
	e.enqueue(withPriority(0, "n0"), withPriority(penstock.MaxPriority, "last"), withPriority(-1, "u0"), withPriority(0, "n1"), withPriority(penstock.MinPriority, "first"), withPriority(-1, "u1"))
	claimed := e.claim(2)
	e.same(claimed, "first", "u0")
	if claimed[0].Priority != penstock.MinPriority || claimed[1].Priority != -1 {
		e.Errorf("claimed jobs of priority %d and %d, want %d and -1", claimed[0].Priority, claimed[1].Priority, penstock.MinPriority)
	}
	e.enqueue(withPriority(-2, "newer"))
	e.want("newer", "u1", "n0", "n1", "last")
}

func prioritiesLIFO(e *env) {
	e.enqueue(withPriority(0, "n0"), withPriority(1, "l0"), withPriority(0, "n1"), withPriority(1, "l1"))
	e.want("n1", "n0", "l1", "l0")
}
