// Package tables has the parts that the stores on plain tables share, whatever the dialect of their SQL: store/portable, store/mysql and store/sqlite. Their
// decisions are here, and their statements in the stores.
//
// # A dialect
//
// A store has a type onTables with the methods of the interfaces below, and embeds the value that it gets for it:
//
//	NewOutboxes(OutboxDB)   outboxes and subscriptions, except Publish and Subscribe
//	NewReader(Reading)      one reader, which Subscribe returns; Reading reads its pages and writes its verdicts, by SettleBy if it is a Settling
//	NewQueues(QueueDB)      queues, schedules and dead jobs; Round is a claim's round trip
//	NewInboxes(InboxDB)     inboxes
//	NewAdopted(AdoptDB)     a table that Penstock did not create
//
// All but Reading and Settling contain DB, which runs statements. The smallest DB is in store/sqlite/dialect.go. A store on another one begins with NewOutboxes and
// NewReader: storetest runs without the rest.
//
// MakeMessages and MakeJobs get a transaction, for a dialect whose transactions define tables. Others use another connection, while the statement
// "patient" keeps the server from ending the transaction.
//
// Where one transaction at a time writes, messages commit in the order of their numbers. Such a dialect, as store/sqlite, says so in
// Options.Position. Its readers have a Cursor, which it keeps in the row of the subscription, and it writes Maintain and Replay. A settled message then
// has no entry.
//
// A queue's dialect that keeps jobs that may run apart, as store/sqlite does by triggers, is a Waker and says so in Options.Ready. A claim is then one
// Round, which looks nowhere else.
//
// Claims of a queue take turns (Round.Alone), or run side by side where the dialect can skip rows that others have locked. The statement "hold_turns" waits for the
// latter, behind the lock of the queue's row.
//
// # Statements
//
// A statement has the name of a file in the store's sql/, or is a text that all dialects understand. A name without a file reaches the database, which
// calls it a syntax error. Tables and columns have the same names in each store's schema.sql.
//
// Arguments are in braces, by their names: numbers in PostgreSQL's dialect, and text in MySQL's. The dialect itself gives {schema}, {clock} (its
// time) and {collate} (which orders by bytes). "{seq in seqs}" is whether a column has one of a list; an empty list has none. Texts compare times
// with '1970-01-01', and lock rows with "for update".
package tables
