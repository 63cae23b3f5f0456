// Package measure runs Penstock's experiments against real databases and brokers.
// Every figure stands next to a ceiling or a rival measured in the same run, so that a ratio means
// something on any machine.
package measure
