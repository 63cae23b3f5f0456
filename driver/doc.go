// Package driver has the interfaces that stores and sinks implement, and that the relay, the worker
// and the writer call: Source, Sink, Queue and the rest. Programs that publish, enqueue, consume or
// work on jobs do not need it.
//
//	commit → Source.Fetch → lanes by key → Sink.Send → []error → Source.Settle
package driver
