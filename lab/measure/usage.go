package measure

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is the use of this process in some phase, an embedded database or broker
// included.
type Usage struct {
	CPU time.Duration `json:"-"`
	// RSSMB is the peak of the resident set, HeapMB that of the live heap as the
	// garbage collector saw it, both in MiB.
	RSSMB  float64 `json:"peak_rss_mb"`
	HeapMB float64 `json:"peak_live_heap_mb"`
}

// raise keeps the larger of each peak.
func (u *Usage) raise(by Usage) {
	u.CPU, u.RSSMB, u.HeapMB = max(u.CPU, by.CPU), max(u.RSSMB, by.RSSMB), max(u.HeapMB, by.HeapMB)
}

// usage measures this process from startUsage to stop.
type usage struct {
	cpu  time.Duration
	end  chan struct{}
	heap chan uint64 // the peak, once, after end
}

func startUsage() usage {
	debug.FreeOSMemory()
	// 5 resets the peak of the resident set (proc(5)); where that cannot be done
	// the peak is the process's so far, which is no less.
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200)
	u := usage{cpu: cpuTime(), end: make(chan struct{}), heap: make(chan uint64, 1)}
	go u.watchHeap()
	return u
}

// stop returns the use. Call it once.
func (u usage) stop() Usage {
	close(u.end)
	return Usage{CPU: cpuTime() - u.cpu, RSSMB: peakRSS(), HeapMB: float64(<-u.heap) / (1 << 20)}
}

func (u usage) watchHeap() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var peak uint64
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		metrics.Read(live)
		peak = max(peak, live[0].Value.Uint64())
		select {
		case <-tick.C:
		case <-u.end:
			u.heap <- peak
			return
		}
	}
}

func peakRSS() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 64)
			return kb / 1024
		}
	}
	return 0
}

// postgresCPU is the CPU time of every PostgreSQL process of this machine, by its
// folder in /proc. Other work of theirs counts too.
func postgresCPU() map[string]time.Duration {
	used := map[string]time.Duration{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		name, _, ok := strings.Cut(string(text), ") ")
		if !ok || !strings.HasSuffix(name, "(postgres") {
			continue
		}
		// Nanoseconds on a CPU; stat itself counts in hundredths of a second.
		sched, err := os.ReadFile(filepath.Join(filepath.Dir(path), "schedstat"))
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(sched), " ")
		if ns, err := strconv.ParseInt(first, 10, 64); err == nil {
			used[path] = time.Duration(ns)
		}
	}
	return used
}

// cpuTime is the time that this process has used so far.
func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
