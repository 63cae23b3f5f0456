//go:build unix && !linux

package run

import "syscall"

// ownGroup gives a command its own process group, out of reach of the terminal's ctrl-c.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
