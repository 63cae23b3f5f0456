// Package format sets the form of messages on the wire: unchanged, as a CloudEvents
// 1.0 event, or with the headers of Debezium's outbox EventRouter.
//
//	sink, err := format.Wrap(sink, format.Config{Kind: format.CloudEvents}, kafka.Driver.Binding)
//
// Wrap puts an encoder in front of any sink. The Binding has the differences between
// protocols, such as the prefix of attribute names.
package format
