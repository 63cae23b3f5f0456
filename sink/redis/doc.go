// Package redis adds messages to streams of Redis or Valkey. DESIGN.md says when
// messages count as confirmed.
//
//	message          entry of the stream
//	Topic            stream (by the template stream), field penstock-topic
//	ID               field penstock-id
//	Key              field penstock-key, if there is one
//	CreatedAt        field penstock-created-at: RFC 3339, nanoseconds, UTC
//	Attempt          field penstock-attempt, from the second on
//	Headers          fields of the same name
//	Payload          field payload
//
// Fields hold any bytes. A stream does not deduplicate: consumers do, by penstock-id.
package redis
