// Package sqlite keeps outboxes and queues in a SQLite file, the application's own, so
// that a message commits with the business data beside it. One writer at a time
// makes the order of sequence numbers the order of commits; a cursor is one
// integer and exact.
//
// Any language publishes with a plain INSERT in its own transaction:
//
//	INSERT INTO penstock_outbox_orders (key, topic, headers, payload) VALUES (?, ?, ?, ?)
//
// where key, headers (a JSON object of strings) and topic may be left out; see
// [Table] for the name. In Go, [Outbox.PublishTx] does it inside the application's
// *sql.Tx, whatever its driver, and checks the messages first.
//
// Jobs are enqueued the same way, by [Queue.EnqueueTx] or
//
//	INSERT INTO penstock_queue_emails (payload, key, group_key, priority, headers) VALUES (?, ?, ?, ?, ?)
//
// with all but payload optional, and a not_before (milliseconds since 1970) if it
// is to wait; see [QueueTable]. work.Run runs them, and [WorkTx] in the
// transaction that ends them. Any language takes one out in its own transaction
// with
//
//	DELETE FROM penstock_queue_emails WHERE seq = (
//	  SELECT abs(r.rank) FROM penstock_ready r JOIN penstock_queues q ON q.id = r.queue_id
//	  WHERE q.name = 'emails' AND r.group_key = '' ORDER BY r.priority, r.rank LIMIT 1)
//	RETURNING payload
//
// See DESIGN.md for durability, reclaim and what a long reader costs.
package sqlite
