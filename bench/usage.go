package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage measures this process from startUsage to stop.
type usage struct{ cpu time.Duration }

func startUsage() usage {
	debug.FreeOSMemory()
	// 5 resets the peak of the resident set (proc(5)); where that cannot be done
	// the peak is the process's so far, which is no less.
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200)
	return usage{cpu: cpuTime()}
}

// stop returns the CPU time used and the peak resident set in MiB.
func (u usage) stop() (cpu time.Duration, rssMB float64) {
	return cpuTime() - u.cpu, peakRSS()
}

func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
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

// idle lets a relay wait for messages and looks what its sessions cost the
// database server.
func (r *relayRun) idle(ctx context.Context) error {
	if r.IdleFor < 0 {
		return nil
	}
	sink, _, close, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer close()
	stop, err := r.startRelay(ctx, sink, nil)
	if err != nil {
		return err
	}
	defer stop()
	if err := sleepUntil(ctx, time.Now().Add(2*time.Second)); err != nil { // until it is idle
		return err
	}
	before := postgresCPU()
	if len(before) == 0 {
		return nil
	}
	r.Progress(fmt.Sprintf("an idle relay for %s", r.IdleFor))
	start := time.Now()
	if err := sleepUntil(ctx, start.Add(r.IdleFor)); err != nil {
		return err
	}
	took := time.Since(start)
	var used time.Duration
	for pid, now := range postgresCPU() {
		used += now - before[pid]
	}
	percent := 100 * used.Seconds() / took.Seconds()
	r.result.IdleDatabaseCPU = &percent
	return nil
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
