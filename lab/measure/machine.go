package measure

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Fact is something about the machine or a server.
type Fact struct {
	Name string `json:"name"`
	Is   string `json:"is"`
}

// Machine says on what is measured; what cannot be read is left out.
func Machine(ctx context.Context, url string) []Fact {
	facts := []Fact{{"Cores", strconv.Itoa(runtime.NumCPU())}, {"System", runtime.GOOS + "/" + runtime.GOARCH}, {"Go", runtime.Version()}}
	for _, f := range []struct{ name, file, begins string }{{"Processor", "/proc/cpuinfo", "model name"}, {"Memory", "/proc/meminfo", "MemTotal"}, {"Kernel", "/proc/sys/kernel/osrelease", ""}, {"Load before", "/proc/loadavg", ""}} {
		text, _ := os.ReadFile(f.file)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, f.begins) {
				_, after, found := strings.Cut(line, ":")
				if !found {
					after = line
				}
				facts = append(facts, Fact{f.name, strings.TrimSpace(after)})
				break
			}
		}
	}
	if !strings.Contains(url, "://") {
		return append(facts, Fact{"Database", "SQLite, a temporary file"})
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return facts
	}
	defer conn.Close(ctx)
	for _, setting := range []string{"server_version", "shared_buffers", "fsync", "synchronous_commit", "full_page_writes", "wal_level", "max_wal_size", "autovacuum"} {
		var is string
		if conn.QueryRow(ctx, "select current_setting($1)", setting).Scan(&is) == nil {
			facts = append(facts, Fact{"PostgreSQL " + setting, is})
		}
	}
	return facts
}

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

// machineCPU is the CPU time that all processes of this machine have used since it was started. The
// second result is the time that its cores had nothing to run or were not given. ok is false where
// there is no /proc. See proc_stat(5).
//
// Where ticks are counted, what is used is an estimate: load that comes at fixed times is in step
// with the ticks, and hit or missed by them. The kernel knows idle time to the microsecond.
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
