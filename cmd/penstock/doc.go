// Command penstock relays outboxes to brokers, works on queues and looks after both.
//
// The verbs are in cmd/penstock/internal/cli, a folder for each subject. Here they are put together
// (root.go), and their tests run the whole command line.
package main
