// Package penstock is a transactional outbox that lives in the user's own
// database, and the words it is described with: messages, sources they are read
// from, sinks they are sent to, and the errors that pass between them. It does
// no I/O; databases are under store/, brokers under sink/, and relay/ carries
// messages from one to the other.
//
//	commit → Source.Fetch → lanes by key → Sink.Send → []error → Source.Settle
package penstock
