// Package penstock is a transactional outbox and a job queue that live in the user's own
// database, and the words they are described with: messages, sources they are read
// from, sinks they are sent to, jobs and their queues, and the errors that pass between
// them. It does no I/O; databases are under store/, brokers under sink/, relay/ carries
// messages from one to the other, and work/ runs handlers on jobs.
//
//	commit → Source.Fetch → lanes by key → Sink.Send → []error → Source.Settle
package penstock
