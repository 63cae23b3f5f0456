//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// A limit on the size of files is an error of the write, not the end of the
// process.
func init() { signal.Ignore(syscall.SIGXFSZ) }
