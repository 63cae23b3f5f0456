//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// A limit on file sizes is an error of the write, and does not end the process.
func init() { signal.Ignore(syscall.SIGXFSZ) }
