package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/penstock/penstock"
)

// contender is one of the queues that a run compares.
type contender struct {
	Database
	label    string
	sql      statements
	prepared []string // the needs of one
	// one dequeues one job; no job is not an error.
	one func(*session) (id int64, ok bool, err error)
	// begins: one has several statements, or must be measured like that.
	begins bool
	// create and drop, where that is not in sql.
	create, drop func(ctx context.Context) error
	cold         bool // one makes no plans beforehand
}

// take dequeues one job in a transaction.
func (c contender) take(s *session) (id int64, ok bool, err error) {
	if !c.begins {
		return c.one(s)
	}
	if err := s.say("begin"); err != nil {
		return 0, false, err
	}
	if id, ok, err = c.one(s); err != nil {
		return 0, false, err
	}
	return id, ok, s.say("commit")
}

// warm makes a session's plans, as they are from the sixth execution on, without
// taking a job.
func (c contender) warm(s *session) error {
	if c.cold {
		return nil
	}
	for range 6 {
		if err := s.say("begin"); err != nil {
			return err
		}
		if _, _, err := c.one(s); err != nil {
			return err
		}
		if err := s.say("rollback"); err != nil {
			return err
		}
	}
	return nil
}

// penstockQueue is a queue of Penstock's, one job at a time.
func penstockQueue(db Database, order penstock.QueueOrder, mode string) contender {
	if db.Plain != nil {
		return portableQueue(db, order)
	}
	words := db.words(db.Name + "_queue")
	words["order"] = literal(string(order))
	return contender{
		Database: db, label: "Penstock", sql: readSQL("penstock", words), prepared: []string{"dequeue"}, begins: mode == ModeTx,
		one: func(s *session) (int64, bool, error) {
			rows, err := s.run("dequeue")
			return first(rows, 0, err)
		},
	}
}

// jobQueue is the published table with the published transaction: four round trips.
func jobQueue(db Database, order penstock.QueueOrder) contender {
	words := db.words(db.Name + "_job_queue")
	words["direction"] = "asc"
	if order == penstock.LIFO {
		words["direction"] = "desc"
	}
	c := contender{
		Database: db, label: "the hand-written queue", sql: db.read("jobqueue", words), prepared: []string{"select", "delete"}, begins: true,
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
		_, err = s.do("making "+c.label, c.sql["create"])
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
	_, err = s.do("removing "+c.label, c.sql["drop"])
	return err
}

// fillChunk is how many jobs a transaction of the preload has.
const fillChunk = 10_000

// fill makes jobs, with the maintenance that workers would do meanwhile.
func (c contender) fill(s *session, jobs int, payload []byte) error {
	c.progress("%s: preparing %d jobs", c.label, jobs)
	for made := 0; made < jobs; made += fillChunk {
		if _, err := s.do("preparing jobs", c.sql["fill"], min(fillChunk, jobs-made), payload); err != nil {
			return err
		}
		if err := c.maintain(s); err != nil {
			return err
		}
	}
	if sql := c.sql["filled"]; sql != "" {
		_, err := s.do("vacuuming", sql)
		return err
	}
	return nil
}

// maintain does one round of housekeeping, of a queue that has some.
func (c contender) maintain(s *session) error {
	if sql := c.sql["maintain"]; sql != "" {
		_, err := s.do("maintaining the queue", sql)
		return err
	}
	return nil
}

// rest is how many jobs are left.
func (c contender) rest(s *session) (n int64, err error) {
	return n, s.value("counting what is left", c.sql["rest"], &n)
}

// wrong is the error of a queue that did not give back what was put into it.
func (c contender) wrong(in, out, left, twice int64) error {
	if in == out+left && twice == 0 {
		return nil
	}
	return &CheckError{When: fmt.Sprintf("%s: %d jobs in, %d out, %d of them twice, %d left", c.label, in, out, twice, left),
		Check: Check{By: "worker", Lost: int(in - out - left + twice), Duplicates: int(twice)}}
}
