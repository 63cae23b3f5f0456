// Package sqlite keeps outboxes in a SQLite file, the application's own, so
// that a message commits with the business data beside it. One writer at a time
// makes the order of sequence numbers the order of commits; a cursor is one
// integer and exact.
//
// Any language publishes with a plain INSERT in its own transaction:
//
//	INSERT INTO penstock_outbox_orders (key, topic, headers, payload) VALUES (?, ?, ?, ?)
//
// where key, headers (a JSON object of strings) and topic may be left out; see
// [Table] for the name. In Go, [Publish] does it inside the application's
// *sql.Tx, whatever its driver, and checks the messages first.
//
// See DESIGN.md for durability, reclaim and what a long reader costs.
package sqlite
