package queuetest

import (
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var dedupCases = named("Dedup", dedupSecondIsTheFirst, dedupTold, dedupWindowEnds, dedupRollback, dedupRace)

func once(key, payload string) penstock.NewJob {
	return penstock.NewJob{DedupKey: key, Payload: []byte(payload)}
}

func dedupSecondIsTheFirst(e *env) {
	first := e.enqueue(once("d", "a"), once("e", "b"))
	second := e.enqueue(once("d", "again"), job("c"), once("e", "again"), once("f", "d"), once("f", "again"))
	if second[0] != first[0] || second[2] != first[1] || second[3] != second[4] {
		e.Errorf("duplicates of %d have the ids %d, want those of the first", first, second)
	}
	claimed := e.want("a", "b", "c", "d")
	e.ack(claimed...)
	// While the window lasts, the id counts whatever happens to the first job.
	suite.Equal(e, e.enqueue(once("d", "after it is done"))[0], first[0], "id of a duplicate of a job that is done")
	e.maintain()
	e.want()
}

// Told: the caller of Enqueue learns which jobs existed already, whatever happened earlier in its
// transaction.
func dedupTold(e *env) {
	batch := []penstock.NewJob{once("d", "a"), job("b"), once("e", "c"), once("d", "again"), once("e", "again"), once("f", "d")}
	made, err := e.q.Enqueue(e.ctx, batch...)
	e.told("new jobs and duplicates within a batch", made, err, false, false, false, true, true, false)
	if made[3].ID != made[0].ID || made[4].ID != made[2].ID {
		e.Errorf("got %+v, want the ids of the first ones", made)
	}
	made, err = e.q.Enqueue(e.ctx, once("d", "again"))
	e.told("one duplicate", made, err, true)
	made, err = e.q.Enqueue(e.ctx, once("g", "e"))
	e.told("one that is none", made, err, false)

	t := e.begin()
	for _, step := range []struct {
		what string
		jobs []penstock.NewJob
		want []bool
	}{
		{"a duplicate", []penstock.NewJob{once("d", "again")}, []bool{true}},
		{"a job without key after it", []penstock.NewJob{job("f")}, []bool{false}},
		{"jobs without keys", []penstock.NewJob{job("g"), job("h")}, []bool{false, false}},
		{"several", []penstock.NewJob{job("i"), once("g", "again"), once("h", "j"), once("h", "again")}, []bool{false, true, false, true}},
		{"a new one", []penstock.NewJob{once("i", "k")}, []bool{false}},
		{"the same again", []penstock.NewJob{once("i", "again")}, []bool{true}},
	} {
		made, err := t.Tx.Enqueue(e.ctx, queue, step.jobs...)
		e.told("in one transaction: "+step.what, made, err, step.want...)
	}
	t.Commit()
	e.ack(e.collect("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")...)
}

func (e *env) told(what string, made []penstock.Enqueued, err error, want ...bool) {
	e.Must(err, what)
	got := make([]bool, len(made))
	for i := range made {
		got[i] = made[i].Deduplicated
	}
	suite.Equal(e, got, want, "%s: deduplicated", what)
}

func dedupWindowEnds(e *env) {
	e.set(penstock.QueueSettings{DedupWindow: new(100 * time.Millisecond)})
	first := e.enqueue(once("d", "a"))
	e.ack(e.collect("a")...)
	e.eventually("the window ends", func() bool { return e.enqueue(once("d", "b"))[0] != first[0] })
	e.ack(e.collect("b")...)
}

func dedupRollback(e *env) {
	t := e.begin()
	t.enqueue(once("d", "never"))
	t.Rollback()
	e.enqueue(once("d", "a"))
	e.ack(e.want("a")...)
}

func dedupRace(e *env) { e.race(once("d", "a")) }

// race has two processes enqueue the same job at once: there is one.
func (e *env) race(j penstock.NewJob) {
	qs := []driver.Queue{e.q, e.Another(e).DriverQueue(queue)}
	made := make([]penstock.Enqueued, 8)
	e.Must(suite.Concurrently(len(made), func(i int) error {
		got, err := qs[i%2].Enqueue(e.ctx, j)
		if err == nil {
			made[i] = got[0]
		}
		return err
	}), "Enqueue of the same job at once")
	first := 0
	for _, m := range made {
		suite.MustEqual(e, m.ID, made[0].ID, "id of one of several at once")
		if !m.Deduplicated {
			first++
		}
	}
	suite.Equal(e, first, 1, "those that were no duplicates")
	e.ack(e.collect(string(j.Payload))...)
	e.maintain()
	e.want()
}
