package run

import "syscall"

// ownGroup gives a command a process group of its own, out of reach of the
// terminal's ctrl-c, and has the kernel kill it should we be killed ourselves:
// its job will run elsewhere.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
