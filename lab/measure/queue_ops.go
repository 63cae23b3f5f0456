package measure

import (
	"encoding/binary"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/penstock/penstock"
)

// The operation that a cell of the queue benchmark measures.
const (
	OpPublish  = "publish"  // plain INSERT into an outbox
	OpBusiness = "business" // pgbench's transaction with a message
	OpInsert   = "insert"   // plain INSERT into the queue
	OpEnqueue  = "enqueue"  // the function, of one job or of many
	OpDequeue  = "dequeue"
	OpClaim    = "claim" // and ack, two calls
	OpWork     = "work"  // work.Run with its defaults
)

// ModePipelined publishes in the round trip of the commit; of OpBusiness.
const ModePipelined = "pipelined"

// ModeCarried acks the jobs of a claim with the next one, as work.Run does: one call for both; of OpClaim.
const ModeCarried = "carried"

// QueueOps are all of them, in the order in which they are measured.
var QueueOps = []string{OpPublish, OpBusiness, OpInsert, OpEnqueue, OpDequeue, OpClaim, OpWork}

// operation is one of them on one of the two queues, with the given number of jobs at a time.
type operation struct {
	contender
	adds     bool // else it takes
	bare     bool // its parameter is the payload of one, not an array
	prepared []string
	// do returns how many jobs it did. params are those of these jobs.
	do     func(s *session, params []byte) (jobs int, err error)
	begins bool                   // within begin and commit
	last   string                 // a statement with these params that goes with the commit
	end    func(s *session) error // once a session does no more; may be nil
}

// operations are op on Penstock's queue and its like on the hand-written one; what adds to a table with the same columns.
func operations(db Setup, op, mode string, batch int) (ours, theirs operation) {
	plain, own := plainQueue(db, "_plain"), ownQueue(db, "_queue", penstock.FIFO)
	begins := mode == ModeTx
	add := func(c contender, statement string) operation {
		return operation{contender: c, adds: true, begins: begins, prepared: []string{statement}, do: func(s *session, payloads []byte) (int, error) {
			_, err := s.run(statement, payloads)
			return int(binary.BigEndian.Uint32(payloads[12:])), err // the length of the array
		}}
	}
	take := func(c contender, statement string, params func(n []byte) [][]byte) operation {
		return operation{contender: c, begins: begins, prepared: []string{statement}, do: func(s *session, n []byte) (int, error) {
			rows, err := s.run(statement, params(n)...)
			return len(rows), err
		}}
	}
	many := func(n []byte) [][]byte { return [][]byte{n} }
	one := "_many"
	if batch == 1 {
		one = "_one"
	}
	switch op {
	case OpPublish:
		outbox := ownOutbox(db)
		return add(outbox, "insert"+one), add(tableLike(outbox, "outbox", db.Name+"_outbox"), "insert"+one)
	case OpInsert, OpEnqueue:
		return add(own, op+one), add(tableLike(own, "penstock", db.Name+"_queue"), "insert"+one)
	case OpWork:
		return operation{contender: penstockQueue(db, penstock.FIFO, mode)}, operation{contender: plain}
	case OpClaim:
		theirs := take(plain, "take", many)
		if db.plain() != nil {
			return claimOnPlainTables(db, mode, batch), theirs
		}
		if mode == ModeCarried {
			return operation{contender: own, prepared: []string{"ack_claim", "ack"}, do: ackAndClaim, end: ackRest}, theirs
		}
		claim := "claim_many"
		if batch == 1 {
			claim = "claim"
		}
		return claimAndAck(own, claim, begins), theirs
	}
	if batch == 1 {
		return take(own, "dequeue", func([]byte) [][]byte { return nil }), take(plain, "take", many)
	}
	return take(own, "take", many), take(plain, "take", many)
}

// ownOutbox is an outbox of Penstock's.
func ownOutbox(db Setup) contender {
	return contender{Setup: db, label: "Penstock", sql: readSQL("outbox", db.words(db.Name+"_outbox"))}
}

// tableLike is a plain table with the columns and defaults of an outbox or a queue, and a primary key.
func tableLike(of contender, file, name string) contender {
	words := of.words(name + "_plain")
	words["of"], words["order"] = of.words(name)["table"], ""
	sql := readSQL(file, words)
	maps.Copy(sql, readSQL("like", words))
	return contender{Setup: of.Setup, label: "the plain table", sql: sql}
}

// leasedByHand is OpClaim or OpWork on a hand-written table whose jobs have leases.
func leasedByHand(db Setup, mode string) operation {
	leased := contender{Setup: db, label: "the hand-written queue with leases", sql: readSQL("leasedqueue", db.words(db.Name+"_leased"))}
	return claimAndAck(leased, "claim", mode == ModeTx)
}

// claimAndAck is two calls: a statement that returns leases, and ack.
func claimAndAck(c contender, claim string, begins bool) operation {
	return operation{contender: c, begins: begins, prepared: []string{claim, "ack"}, do: func(s *session, n []byte) (int, error) {
		rows, err := s.run(claim, n)
		if err != nil || len(rows) == 0 {
			return 0, err
		}
		held, err := s.run("ack", bigints(rows))
		return len(held), err
	}}
}

// claimOnPlainTables is OpClaim by the store's calls: there are no functions in the database.
func claimOnPlainTables(db Setup, mode string, batch int) operation {
	claim, end := plainClaims(db, mode)
	return operation{contender: portableQueue(db, penstock.FIFO, mode), end: end, do: func(s *session, _ []byte) (int, error) {
		jobs, err := claim(s, batch)
		return len(jobs), err
	}}
}

// ackAndClaim is one call: it ends the jobs of the last one. It returns jobs, and behind them the leases that were held.
func ackAndClaim(s *session, n []byte) (int, error) {
	rows, err := s.run("ack_claim", n, bigints(s.claimed))
	if err != nil {
		return 0, err
	}
	jobs := rows
	for len(jobs) > 0 && jobs[len(jobs)-1][1] == nil {
		jobs = jobs[:len(jobs)-1]
	}
	if ended := len(rows) - len(jobs); ended != len(s.claimed) {
		return 0, fmt.Errorf("of %d jobs %d were ended", len(s.claimed), ended)
	}
	s.claimed = jobs
	return len(jobs), nil
}

// ackRest ends what no other claim will.
func ackRest(s *session) error {
	ended, err := s.run("ack", bigints(s.claimed))
	if err == nil && len(ended) != len(s.claimed) {
		err = fmt.Errorf("of the last %d jobs %d were ended", len(s.claimed), len(ended))
	}
	return err
}

// bigints is the array of the first columns, as they came.
func bigints(rows [][][]byte) []byte {
	dimensions := min(len(rows), 1)
	array := make([]byte, 0, 20+12*len(rows))
	for _, word := range []int{dimensions, 0, pgtype.Int8OID, len(rows), 1}[:3+2*dimensions] {
		array = binary.BigEndian.AppendUint32(array, uint32(word))
	}
	for _, row := range rows {
		array = append(binary.BigEndian.AppendUint32(array, 8), row[0]...)
	}
	return array
}

// params of an operation on n jobs.
func (o operation) params(s *session, n int, payload []byte) ([]byte, error) {
	if !o.adds {
		return binary.BigEndian.AppendUint32(nil, uint32(n)), nil
	}
	if o.bare {
		return payload, nil
	}
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = payload
	}
	return s.conn.TypeMap().Encode(pgtype.ByteaArrayOID, inBinary[0], payloads, nil)
}

// once does it, in a transaction if asked to.
func (o operation) once(s *session, params []byte) (jobs int, err error) {
	if !o.begins {
		return o.do(s, params)
	}
	if o.last == "" {
		err = s.inTx("commit", func() error {
			jobs, err = o.do(s, params)
			return err
		})
		return jobs, err
	}
	if err := s.say("begin"); err != nil {
		return 0, err
	}
	if jobs, err = o.do(s, params); err != nil {
		return 0, err
	}
	return jobs, s.commitWith(o.last, params)
}

// warm makes the session's plans with one job, without doing it.
func (o operation) warm(s *session, payload []byte) error {
	if o.cold {
		return nil
	}
	one, err := o.params(s, 1, payload)
	if err != nil {
		return err
	}
	return warm(s, func() error {
		_, err := o.do(s, one)
		if err == nil && o.last != "" {
			_, err = s.run(o.last, one)
		}
		s.claimed = nil // is not
		return err
	})
}
