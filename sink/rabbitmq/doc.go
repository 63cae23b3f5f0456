// Package rabbitmq is the sink for RabbitMQ (AMQP 0-9-1).
//
// Every message is published persistent and mandatory. It counts as delivered when
// RabbitMQ has confirmed it and has not returned it. Then it is in every queue that
// it was routed to, at least one, and on disk if the queue is durable.
//
//	message          AMQP
//	ID               message-id
//	Topic            routing key (by the template routing_key), else header penstock-topic
//	Key              header penstock-key
//	CreatedAt        timestamp; with created_at_header also penstock-created-at
//	Attempt          header penstock-attempt, from the second on
//	Headers          headers of the same name: traceparent stays traceparent;
//	                 content-type is the property content-type
//	Payload          body
//
// Consumers deduplicate by message-id. DESIGN.md explains how it works and why.
package rabbitmq
