//go:build unix

package run

import (
	"os"
	"syscall"
)

var shell = []string{"/bin/sh", "-c"}

// killGroup kills a command and what it started.
func killGroup(command *os.Process) error {
	if err := command.Signal(syscall.Signal(0)); err != nil {
		return err // it has ended: its number may be another's
	}
	return syscall.Kill(-command.Pid, syscall.SIGKILL)
}
