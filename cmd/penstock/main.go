package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A limit on the size of files is an error of the write, not the end of the
	// process.
	signal.Ignore(syscall.SIGXFSZ)
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
