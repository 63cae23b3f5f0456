//go:build unix

package measure

import (
	"syscall"
	"time"
)

// cpuTime is the time that this process has used so far.
func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// syncDisks waits until the disks have all that was written.
func syncDisks() { syscall.Sync() }
