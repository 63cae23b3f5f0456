// Chaos runs Penstock for a while under everything that goes wrong in production,
// and judges by what a consumer got and what the business's own tables say.
//
//	make chaos DURATION=10m SEED=7
//
//	producers ──► PostgreSQL ◄── relay a ──► RabbitMQ ──► consumer ──┐
//	    │             │      ◄── relay b ──► NATS ──────► reader ────┤
//	    │             ├──────── workers a, b, c ──► handler of jobs ─┤
//	    │             └── business table ──────────────────────────► checker
//	    └── journal: what was tried, what was answered ──────────────┘
//
// Every line between two boxes is a TCP proxy that cuts, stalls, delays and
// refuses, and every box but the checker's is killed now and then (faults.go).
// PostgreSQL has an asynchronous standby, which is promoted now and then without the
// last that was committed (wal_loss.go), and a clock that is set now and then.
// The database is on plain tables, in MariaDB, in SQLite or in Citus if a flag says so. In Citus the workers are killed and shards move.
// The servers are real, private and on loopback; the relays are the real binary.
//
// Producers write a row of the business table and a message in one transaction
// (producer.go). The rows that the business table has at the end were committed, whatever the
// producer heard; the outbox is never asked. Rows that PostgreSQL lost with its WAL are not
// there and need not have been delivered. Rows that are there must have been, to consumers who drop
// each id that they have seen, as an inbox does.
//
// Some of the messages come with a job, enqueued in the same transaction (jobs.go). Three workers post the jobs to a handler in this
// program. It refuses some, fails some, leaves some without an answer and takes longer than a lease for some; the operator cancels a few.
// Each job that was committed must be done, once, and no other may run (check_jobs.go). No two jobs of a key may run at a time, nor a job
// twice, while the first one's lease lasts. The jobs of a key must be done in their order. In the end the queue must be empty.
//
// The jobs are in three groups, with limits, rates and weights. On PostgreSQL some wait for others by a barrier, and now and then one waits for
// hundreds. Some have unique keys: of each key the last one that was committed must be done, and those before it may be replaced.
//
// The checker (check.go) is a plain function of the
// records, with separate tests.
//
// One JSON line on standard output, progress on standard error. The exit code is
// 0 if nothing was violated, 1 if something was, 2 if the run itself failed. A
// violation is followed by the life of the messages concerned and the name of
// a folder with every log.
package main
