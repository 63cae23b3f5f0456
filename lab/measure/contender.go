package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// contender is one of the queues that a run compares.
type contender struct {
	Setup
	label    string
	sql      statements
	prepared []string // the needs of one
	// one dequeues one job; no job is not an error.
	one func(*session) (id int64, ok bool, err error)
	// begins: one has several statements, or must be measured like that.
	begins bool
	// create and drop, where that is not in sql.
	create, drop func(ctx context.Context) error
	end          func(*session) error // after the last one, if it is not nil
	cold         bool                 // one makes no plans beforehand
}

// inTx runs do within begin and the given end.
func (s *session) inTx(end string, do func() error) error {
	if err := s.say("begin"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return s.say(end)
}

// take dequeues one job in a transaction.
func (c contender) take(s *session) (id int64, ok bool, err error) {
	if !c.begins {
		return c.one(s)
	}
	err = s.inTx("commit", func() (err error) {
		id, ok, err = c.one(s)
		return err
	})
	return id, ok, err
}

// warm makes a session's plans, as they are from the sixth execution on, without
// taking a job.
func (c contender) warm(s *session) error {
	if c.cold {
		return nil
	}
	return warm(s, func() error {
		_, _, err := c.one(s)
		return err
	})
}

func warm(s *session, do func() error) error {
	for range 6 {
		if err := s.inTx("rollback", do); err != nil {
			return err
		}
	}
	return nil
}

// penstockQueue is a queue of Penstock's, one job at a time.
func penstockQueue(db Setup, order penstock.QueueOrder, mode string) contender {
	if db.plain() != nil {
		return portableQueue(db, order, mode)
	}
	c := ownQueue(db, "_queue", order)
	c.prepared, c.begins = []string{"dequeue"}, mode == ModeTx
	c.one = func(s *session) (int64, bool, error) {
		rows, err := s.run("dequeue")
		return first(rows, 0, err)
	}
	return c
}

// ownQueue is a queue of Penstock's on PostgreSQL.
func ownQueue(db Setup, name string, order penstock.QueueOrder) contender {
	words := db.words(db.Name + name)
	words["order"] = literal(string(order))
	return contender{Setup: db, label: "Penstock", sql: readSQL("penstock", words)}
}

// plainQueue is a hand-written queue without leases.
func plainQueue(db Setup, name string) contender {
	return contender{Setup: db, label: "the hand-written queue", sql: readSQL("plainqueue", db.words(db.Name+name))}
}

// portableQueue is a queue on plain tables: a job is claimed and acked, a round trip each, or acked with the next claim.
func portableQueue(db Setup, order penstock.QueueOrder, mode string) contender {
	name, store := db.Name+"_queue", db.plain()
	claim, end := plainClaims(db, mode)
	return contender{
		Setup: db, label: "Penstock, on plain tables", sql: db.read("portable", db.words("queue_"+name)), cold: true,
		create: func(ctx context.Context) error { return store.CreateQueue(ctx, name, order) },
		drop:   func(ctx context.Context) error { return store.DropQueue(ctx, name) },
		one: func(s *session) (int64, bool, error) {
			jobs, err := claim(s, 1)
			if err != nil || len(jobs) == 0 {
				return 0, false, err
			}
			return jobs[0].ID, true, nil
		},
		end: end,
	}
}

// plainClaims are calls of a queue on plain tables: claim also acks its jobs, or with ModeCarried those of the last claim, and then end
// acks the rest.
func plainClaims(db Setup, mode string) (claim func(*session, int) ([]penstock.Job, error), end func(*session) error) {
	q := db.plain().DriverQueue(db.Name + "_queue").(interface {
		driver.Queue
		driver.AckClaimer
	})
	ended := func(held, leases []int64, err error) error {
		if err == nil && len(held) < len(leases) {
			err = errors.New("the lease of a job has ended before its ack")
		}
		return err
	}
	ack := func(s *session) error {
		held, err := q.Ack(s.ctx, s.leases...)
		err, s.leases = ended(held, s.leases, err), nil
		return err
	}
	claim = func(s *session, n int) ([]penstock.Job, error) {
		held, jobs, err := q.AckClaim(s.ctx, s.leases, driver.Claim{Jobs: n, Lease: time.Minute})
		err, s.leases = ended(held, s.leases, err), nil
		for _, j := range jobs {
			s.leases = append(s.leases, j.Lease)
		}
		if err == nil && mode != ModeCarried && len(jobs) > 0 {
			err = ack(s)
		}
		return jobs, err
	}
	if mode == ModeCarried {
		return claim, ack
	}
	return claim, nil
}

// jobQueue is the published table with the published transaction: four round trips.
func jobQueue(db Setup, order penstock.QueueOrder) contender {
	words := db.words(db.Name + "_job_queue")
	words["direction"] = map[penstock.QueueOrder]string{penstock.FIFO: "asc", penstock.LIFO: "desc"}[order]
	c := contender{
		Setup: db, label: "the hand-written queue", sql: db.read("jobqueue", words), prepared: []string{"select", "delete"}, begins: true,
		one: func(s *session) (int64, bool, error) {
			rows, err := s.run("select")
			id, ok, err := first(rows, 1, err)
			if !ok || err != nil {
				return 0, false, err
			}
			_, err = s.run("delete", rows[0][0], rows[0][1])
			return id, true, err
		},
	}
	if db.mysql() != nil {
		return jobQueueMySQL(c)
	}
	return c
}

// first is the bigint in a column of the first row.
func first(rows [][][]byte, column int, err error) (int64, bool, error) {
	if err != nil || len(rows) == 0 {
		return 0, false, err
	}
	return int64(binary.BigEndian.Uint64(rows[0][column])), true, nil
}

// in makes the contender's table, lets do have it, and removes it.
func (c contender) in(ctx context.Context, do func(*session) error) (err error) {
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if c.create != nil {
		err = c.create(ctx)
	} else {
		err = s.do("making "+c.label, c.sql["create"])
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.remove(ctx)) }()
	return do(s)
}

// remove has a separate connection: after an interrupt the others are unusable.
func (c contender) remove(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if c.drop != nil {
		return c.drop(ctx)
	}
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	return s.do("removing "+c.label, c.sql["drop"])
}

// fillChunk is how many jobs a transaction of the preload has.
const fillChunk = 10_000

// fill makes jobs, with the maintenance that workers would do meanwhile.
func (c contender) fill(s *session, jobs int, payload []byte) error {
	c.progress("%s: preparing %d jobs", c.label, jobs)
	for made := 0; made < jobs; made += fillChunk {
		if err := errors.Join(s.do("preparing jobs", c.sql["fill"], min(fillChunk, jobs-made), payload), c.maintain(s)); err != nil {
			return err
		}
	}
	return c.perhaps(s, "filled")
}

// maintain does one round of housekeeping, of a queue that has some.
func (c contender) maintain(s *session) error { return c.perhaps(s, "maintain") }

// perhaps executes a statement that some have.
func (c contender) perhaps(s *session, name string) error {
	if sql := c.sql[name]; sql != "" {
		return s.do(name, sql)
	}
	return nil
}

// checked is the error of a queue that did not give back what was put into it.
func (c contender) checked(s *session, in, out, twice int64) (left int64, err error) {
	if err := s.value("counting what is left", c.sql["rest"], &left); err != nil || in == out+left && twice == 0 {
		return left, err
	}
	return left, &CheckError{When: fmt.Sprintf("%s: %d jobs in, %d out, %d of them twice, %d left", c.label, in, out, twice, left),
		Check: Check{By: "worker", Lost: int(in - out - left + twice), Duplicates: int(twice)}}
}
