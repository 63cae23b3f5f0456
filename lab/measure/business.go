package measure

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// business is pgbench's TPC-B-like transaction with one message, without, and with the message in a plain table. In ModePipelined
// the message goes in the round trip of the commit. There are ten branches more than workers, so that the wait for a branch is
// not measured. There are as many accounts as pgbench makes, unless the cell has fewer jobs.
func business(db Setup, mode string, workers, jobs int) []operation {
	words := db.words(db.Name + "_bank")
	for _, table := range []string{"branches", "tellers", "accounts", "history"} {
		words[table] = pgx.Identifier{db.Name + "_" + table}.Sanitize()
	}
	scale, accounts, tellers := workers+10, min(jobs, 100_000), 10
	words["scale"], words["each"] = strconv.Itoa(scale), strconv.Itoa(accounts)
	bank := contender{Setup: db, label: "the bank", sql: readSQL("tpcb", words)}
	steps := []string{"update_account", "balance", "update_teller", "update_branch", "remember"}
	transact := func(s *session, _ []byte) (int, error) {
		account, delta := int4(1+rand.IntN(scale*accounts)), int4(rand.IntN(10_001)-5000)
		teller, branch := int4(1+rand.IntN(scale*tellers)), int4(1+rand.IntN(scale))
		for i, params := range [][][]byte{{account, delta}, {account}, {teller, delta}, {branch, delta}, {teller, branch, account, delta}} {
			if _, err := s.run(steps[i], params...); err != nil {
				return 0, err
			}
		}
		return 1, nil
	}
	publishes := func(to contender) operation {
		for _, step := range steps {
			to.sql[step] = bank.sql[step]
		}
		op := operation{contender: to, adds: true, bare: true, begins: true, prepared: append([]string{"publish"}, steps...), do: transact}
		if mode == ModePipelined {
			op.last = "publish"
			return op
		}
		op.do = func(s *session, message []byte) (int, error) {
			if _, err := transact(s, nil); err != nil {
				return 0, err
			}
			_, err := s.run("publish", message)
			return 1, err
		}
		return op
	}
	outbox := ownOutbox(db)
	return []operation{
		publishes(outbox),
		{contender: bank, adds: true, begins: true, prepared: steps, do: transact},
		publishes(tableLike(outbox, "outbox", db.Name+"_outbox")),
	}
}

func int4(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
