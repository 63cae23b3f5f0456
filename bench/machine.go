package bench

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// userHZ is in what /proc counts CPU time, on every Linux that Go runs on.
const userHZ = 100

// machineCPU is the CPU time that all processes of this machine have used since it
// was started; false where there is no /proc. See proc_stat(5).
func machineCPU() (time.Duration, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	return busyTime(string(text))
}

// busyTime reads the first line of /proc/stat: "cpu", then the time of user, nice,
// system, idle, iowait, irq, softirq, steal. Steal went to other machines, and what
// follows is in user already.
func busyTime(stat string) (time.Duration, bool) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, false
	}
	var ticks int64
	for i, field := range fields[1:8] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, false
		}
		if i != 3 && i != 4 { // idle, iowait
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / userHZ, true
}
