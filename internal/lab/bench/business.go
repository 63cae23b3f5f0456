package bench

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// business is pgbench's TPC-B-like transaction with one message and without. In ModePipelined the message is published in the
// round trip of the commit. There are as many branches as workers, as pgbench advises.
func business(db Database, mode string, workers int) (ours, theirs operation) {
	words := db.words(db.Name + "_bank")
	for _, table := range []string{"branches", "tellers", "accounts", "history"} {
		words[table] = pgx.Identifier{db.Name + "_" + table}.Sanitize()
	}
	scale := max(workers, 10)
	words["scale"] = strconv.Itoa(scale)
	bank := contender{Database: db, label: "the bank", sql: readSQL("tpcb", words)}
	outbox := contender{Database: db, label: "Penstock", sql: readSQL("outbox", db.words(db.Name+"_outbox"))}
	steps := []string{"update_account", "balance", "update_teller", "update_branch", "remember"}
	for _, step := range steps {
		outbox.sql[step] = bank.sql[step]
	}
	transact := func(s *session, _ []byte) (int, error) {
		account, delta := int4(1+rand.IntN(scale*10_000)), int4(rand.IntN(10_001)-5000)
		teller, branch := int4(1+rand.IntN(scale*10)), int4(1+rand.IntN(scale))
		for i, params := range [][][]byte{{account, delta}, {account}, {teller, delta}, {branch, delta}, {teller, branch, account, delta}} {
			if _, err := s.run(steps[i], params...); err != nil {
				return 0, err
			}
		}
		return 1, nil
	}
	theirs = operation{contender: bank, adds: true, begins: true, prepared: steps, do: transact}
	ours = operation{contender: outbox, adds: true, begins: true, prepared: append(steps, "insert_one"), do: transact}
	if mode == ModePipelined {
		ours.last = "insert_one"
		return ours, theirs
	}
	ours.do = func(s *session, message []byte) (int, error) {
		if _, err := transact(s, nil); err != nil {
			return 0, err
		}
		_, err := s.run("insert_one", message)
		return 1, err
	}
	return ours, theirs
}

func int4(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
