package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// CPU is how many cores were busy on average while something was measured. A client
// that takes nearly all that the server leaves is what bounds a figure.
type CPU struct {
	Cores   int     `json:"cores"`        // of this machine
	Client  float64 `json:"client_cores"` // this process
	Server  float64 `json:"server_cores"` // PostgreSQL on this machine, 0 if it is elsewhere
	Machine float64 `json:"machine_cores"`
}

// cpuWatch measures from startCPU to stop.
type cpuWatch struct {
	at              time.Time
	client, machine time.Duration
	server          map[string]time.Duration
}

func startCPU() cpuWatch {
	machine, _, _ := machineCPU()
	return cpuWatch{at: time.Now(), client: cpuTime(), machine: machine, server: postgresCPU()}
}

// stop has to come while the sessions are open: what a server process that has ended
// used is not known any more.
func (w cpuWatch) stop() CPU {
	machine, _, _ := machineCPU()
	took := time.Since(w.at)
	var server time.Duration
	for pid, now := range postgresCPU() {
		server += now - w.server[pid]
	}
	cores := func(d time.Duration) float64 { return over(d.Seconds(), took.Seconds()) }
	return CPU{Cores: runtime.NumCPU(), Client: cores(cpuTime() - w.client), Server: cores(server), Machine: cores(machine - w.machine)}
}

// userHZ is in what /proc counts CPU time, on every Linux that Go runs on.
const userHZ = 100

// machineCPU is the CPU time that all processes of this machine have used since it
// was started, and the time that its cores had nothing to run or were not given; false where
// there is no /proc. See proc_stat(5).
//
// Where ticks are counted, what is used is an estimate: load that comes at fixed times is in step
// with the ticks, and hit or missed by them. What is idle the kernel knows to the microsecond.
func machineCPU() (busy, idle time.Duration, ok bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	return busyTime(string(text))
}

// busyTime reads the first line of /proc/stat: "cpu", then the time of user, nice,
// system, idle, iowait, irq, softirq, steal. Steal went to other machines, and what
// follows is in user already.
func busyTime(stat string) (busy, idle time.Duration, ok bool) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, 0, false
	}
	for i, field := range fields[1:min(len(fields), 9)] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, false
		}
		switch t := time.Duration(n) * time.Second / userHZ; i {
		case 3, 4, 7: // idle, iowait, steal
			idle += t
		default:
			busy += t
		}
	}
	return busy, idle, true
}
