// Command penstock relays outboxes to brokers, works on queues and operates both.
//
// The verbs are in cmd/penstock/internal/cli, one folder per subject. root.go assembles them, and
// the tests here run the whole command line.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
