// Package nats sends messages to NATS JetStream, on servers elsewhere or on one
// in this process, which the program itself runs. DESIGN.md says what is confirmed
// when, and why acknowledgements are handled here rather than by the client library.
//
// On the wire: the payload as it is; Nats-Msg-Id carries the message's id, by
// which JetStream drops a second copy within the stream's duplicate window;
// Penstock-Key, Penstock-Topic and Penstock-Created-At (RFC 3339, nanoseconds,
// UTC) carry the rest, Penstock-Attempt from the second delivery on; the
// message's own headers keep their names.
package nats
