// Package sqlite keeps outboxes, queues and inboxes in the application's own SQLite file.
// So a message commits together with the business data. SQLite has one writer at a time,
// so the order of sequence numbers is the order of commits, and a cursor is one exact
// integer.
//
// Any language publishes with a plain INSERT in its own transaction:
//
//	INSERT INTO penstock_outbox_orders (key, topic, headers, payload) VALUES (?, ?, ?, ?)
//
// key, headers (a JSON object of strings) and topic may be left out. See [Table] for
// the name of the table. In Go, [Outbox.PublishTx] does it inside the application's
// *sql.Tx, with any driver, and checks the messages first.
//
// Jobs are enqueued the same way, by [Queue.EnqueueTx] or
//
//	INSERT INTO penstock_queue_emails (payload, key, group_key, priority, headers) VALUES (?, ?, ?, ?, ?)
//
// All except payload are optional. not_before, in milliseconds since 1970, delays a
// job. See [QueueTable]. work.Run runs jobs, and [WorkTx] runs them in the transaction
// that ends them. Any language takes a job out in its own transaction with
//
//	DELETE FROM penstock_queue_emails WHERE seq = (
//	  SELECT abs(r.rank) FROM penstock_ready r JOIN penstock_queues q ON q.id = r.queue_id
//	  WHERE q.name = 'emails' AND r.group_key = '' ORDER BY r.priority, r.rank LIMIT 1)
//	RETURNING payload
//
// DESIGN.md describes durability, reclaim and the cost of a long reader.
package sqlite
