// Package nats sends messages to NATS JetStream, on other servers or on one that runs
// in this process. DESIGN.md describes when messages count as confirmed, and why the client
// library does not handle acknowledgements.
//
//	message          NATS
//	Topic            subject (by the template subject), header Penstock-Topic
//	ID               header Nats-Msg-Id
//	Key              header Penstock-Key
//	CreatedAt        header Penstock-Created-At: RFC 3339, nanoseconds, UTC
//	Attempt          header Penstock-Attempt, from the second on
//	Headers          headers of the same name
//	Payload          data
//
// JetStream drops a second message with the same Nats-Msg-Id within the stream's
// duplicate window.
package nats
