// Package driver is what a store and a sink implement, and what the relay, the worker and the
// writer call: Source, Sink, Queue and the rest. Who publishes, enqueues, consumes or works on jobs
// needs none of it.
//
//	commit → Source.Fetch → lanes by key → Sink.Send → []error → Source.Settle
package driver
