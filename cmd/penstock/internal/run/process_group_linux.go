package run

import "syscall"

// ownGroup gives a command its own process group, out of reach of the terminal's ctrl-c. It also
// makes the kernel kill the command if this process is killed: its job will run elsewhere.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
