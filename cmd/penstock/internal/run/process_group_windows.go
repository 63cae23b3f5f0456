package run

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

var shell = []string{"cmd", "/C"}

// ownGroup keeps the terminal's ctrl-c from a command.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// killGroup kills a command and the processes that it started; without taskkill, only the command.
func killGroup(command *os.Process) error {
	if exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(command.Pid)).Run() == nil {
		return nil
	}
	return command.Kill()
}
