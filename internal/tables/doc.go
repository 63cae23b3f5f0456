// Package tables is what the stores on plain tables do alike, whatever the dialect of their SQL: store/portable and store/mysql, and store/sqlite
// for its inboxes. Their decisions are here, and their statements in the stores.
//
// # A dialect
//
// A store has a type onTables with the methods of the interfaces below, and embeds what it gets for it:
//
//	NewOutboxes(OutboxDB)   outboxes and subscriptions, except Publish and Subscribe
//	NewReader(Reading)      one reader, which Subscribe returns; Reading reads its pages and writes its verdicts
//	NewQueues(QueueDB)      queues, schedules and dead jobs; Round is a claim's round trip
//	NewInboxes(InboxDB)     inboxes
//	NewAdopted(AdoptDB)     a table that Penstock did not create
//
// All but Reading contain DB, which runs statements. The smallest DB is in store/sqlite/dialect.go. A store on another one begins with NewOutboxes and
// NewReader: storetest runs without the rest.
//
// MakeMessages and MakeJobs are called in a transaction of Within and do not get it: they use another connection, while the statement
// "patient" keeps the server from ending the transaction.
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
