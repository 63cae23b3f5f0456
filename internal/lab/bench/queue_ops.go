package bench

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"
)

// What a cell of the queue benchmark does.
const (
	OpInsert  = "insert"  // plain INSERT into the queue
	OpEnqueue = "enqueue" // the function, of one job or of many
	OpDequeue = "dequeue"
	OpClaim   = "claim" // and ack, two calls
	OpWork    = "work"  // work.Run with its defaults
)

// QueueOps are all of them, in the order in which they are measured.
var QueueOps = []string{OpInsert, OpEnqueue, OpDequeue, OpClaim, OpWork}

// operation is one of them on one of the two queues, with so many jobs at a time.
type operation struct {
	contender
	adds     bool // else it takes
	prepared []string
	// do returns how many jobs it did. params are those of these jobs.
	do     func(s *session, params []byte) (jobs int, err error)
	begins bool // within begin and commit
}

// operations are op on Penstock's queue and its like on the hand-written one.
func operations(db Database, op, mode string, batch int) (ours, theirs operation) {
	words := db.words(db.Name + "_queue")
	words["order"] = literal("fifo")
	plain := contender{Database: db, label: "the hand-written queue", sql: readSQL("plainqueue", db.words(db.Name+"_plain"))}
	penstock := contender{Database: db, label: "Penstock", sql: readSQL("penstock", words)}
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
	switch op {
	case OpInsert:
		return add(penstock, "insert"), add(plain, "insert")
	case OpEnqueue:
		statement := "enqueue_many"
		if batch == 1 {
			statement = "enqueue_one"
		}
		return add(penstock, statement), add(plain, "insert")
	case OpWork:
		return operation{contender: penstock}, operation{contender: plain}
	case OpClaim:
		return operation{contender: penstock, begins: begins, prepared: []string{"claim", "ack"}, do: claimAndAck}, take(plain, "take", many)
	}
	if batch == 1 {
		return take(penstock, "dequeue", func([]byte) [][]byte { return nil }), take(plain, "take", many)
	}
	return take(penstock, "take", many), take(plain, "take", many)
}

func claimAndAck(s *session, n []byte) (int, error) {
	rows, err := s.run("claim", n)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	// The leases go back as they came: an array of one dimension.
	leases := make([]byte, 0, 20+12*len(rows))
	for _, word := range []int{1, 0, pgtype.Int8OID, len(rows), 1} {
		leases = binary.BigEndian.AppendUint32(leases, uint32(word))
	}
	for _, row := range rows {
		leases = append(binary.BigEndian.AppendUint32(leases, 8), row[0]...)
	}
	held, err := s.run("ack", leases)
	return len(held), err
}

// params of an operation on n jobs.
func (o operation) params(s *session, n int, payload []byte) ([]byte, error) {
	if !o.adds {
		return binary.BigEndian.AppendUint32(nil, uint32(n)), nil
	}
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = payload
	}
	return s.conn.TypeMap().Encode(pgtype.ByteaArrayOID, inBinary[0], payloads, nil)
}

// once does it, in a transaction if it is to be.
func (o operation) once(s *session, params []byte) (jobs int, err error) {
	if !o.begins {
		return o.do(s, params)
	}
	if err := s.say("begin"); err != nil {
		return 0, err
	}
	if jobs, err = o.do(s, params); err != nil {
		return 0, err
	}
	return jobs, s.say("commit")
}

// warm makes the session's plans with one job, without doing it.
func (o operation) warm(s *session, payload []byte) error {
	one, err := o.params(s, 1, payload)
	if err != nil {
		return err
	}
	for range 6 {
		if err := s.say("begin"); err != nil {
			return err
		}
		if _, err := o.do(s, one); err != nil {
			return err
		}
		if err := s.say("rollback"); err != nil {
			return err
		}
	}
	return nil
}
