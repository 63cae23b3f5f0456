// Package kafka is the sink for Apache Kafka and brokers that speak its protocol.
//
// Messages are produced idempotently with acks=all. A message counts as delivered
// when every in-sync replica of its partition has it.
//
//	message          Kafka
//	Topic            topic (by the template topic), else header penstock-topic
//	Key              record key, which chooses the partition; null without a key
//	ID               header penstock-id
//	CreatedAt        header penstock-created-at; with timestamp: created also the record's timestamp
//	Attempt          header penstock-attempt, from the second on
//	Headers          headers of the same name: content-type stays content-type
//	Payload          record value
//
// Consumers deduplicate by penstock-id. DESIGN.md explains how it works and why.
package kafka
