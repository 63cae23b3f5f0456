// Package webhook sends messages to an HTTP endpoint, one request per message.
//
//	POST /hooks/orders.placed HTTP/1.1
//	Content-Type: application/json
//	Idempotency-Key: 0c9e6a52-17
//	Webhook-Id: 0c9e6a52-17
//	Webhook-Timestamp: 1767323045
//	Webhook-Signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=
//	Penstock-Topic: orders.placed
//	Penstock-Key: customer-4711
//
// The headers Webhook-… are there if Config has Secrets.
// A 2xx answer delivers the message. Requests of different keys run concurrently,
// those of one key one after another. DESIGN.md explains every other answer,
// and which addresses the sink does not connect to.
package webhook
