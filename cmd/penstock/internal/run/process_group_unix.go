//go:build unix

package run

import (
	"os"
	"syscall"
)

var shell = []string{"/bin/sh", "-c"}

// killGroup kills a command and the processes that it started.
func killGroup(command *os.Process) error {
	if err := command.Signal(syscall.Signal(0)); err != nil {
		return err // it has ended: another process may have its number
	}
	return syscall.Kill(-command.Pid, syscall.SIGKILL)
}
