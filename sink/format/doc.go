// Package format decides what a message looks like on the wire: as it is, as a
// CloudEvents 1.0 event, or with the headers of Debezium's outbox EventRouter.
//
//	sink, err := format.Wrap(sink, format.Config{Kind: format.CloudEvents}, kafka.Driver.Binding)
//
// Wrap puts an encoder in front of any sink. What differs between protocols,
// such as the prefix of attribute names, is the Binding.
package format
