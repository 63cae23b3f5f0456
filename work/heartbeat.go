package work

import (
	"context"
	"maps"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// attempts counts how those of a worker ended.
type attempts struct{ done, failed, dead, lost, settled atomic.Int64 }

func (a *attempts) count(how End) {
	switch how {
	case Done:
		a.done.Add(1)
	case Settled:
		a.settled.Add(1)
	case Failed:
		a.failed.Add(1)
	case Dead:
		a.dead.Add(1)
	case Lost:
		a.lost.Add(1)
	}
}

// heartLoop notes that this worker lives, until ctx ends. Nothing depends on it but the operators' view: if it fails, as for a role that may
// not, or in an outage, the next heartbeat is at its usual time.
func (w *worker) heartLoop(ctx context.Context) {
	for wait := time.Duration(0); sleep(ctx, wait); wait = spread(driver.HeartbeatEvery) {
		w.heartbeat(ctx, false, callTimeout)
	}
}

func (w *worker) heartbeat(ctx context.Context, stopped bool, patience time.Duration) {
	q, ok := w.q.(driver.Heartbeater)
	if !ok || w.Worker == "" || w.failure() != nil {
		return
	}
	state := admin.Worker{
		Name: w.Worker, Version: w.Version, StartedAt: w.started, Concurrency: w.Concurrency, Groups: w.Groups, Stopped: stopped,
		Done: w.ended.done.Load() + w.ended.settled.Load(), Failed: w.ended.failed.Load(), Dead: w.ended.dead.Load(),
	}
	if len(w.Groups) == 0 && !w.AllGroups {
		state.Groups = []string{w.Group}
	}
	w.mu.Lock()
	state.Running, state.ClaimedAt = len(w.held), w.claimed
	state.Unhandled = slices.Sorted(maps.Keys(w.strange))
	w.mu.Unlock()
	state.Unhandled = state.Unhandled[:min(len(state.Unhandled), admin.MaxUnhandled)]
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := q.Heartbeat(call, state); err != nil && ctx.Err() == nil {
		w.log.Debug("cannot send a heartbeat", "err", err)
	}
}

// programVersion is the main module of this program with its version, or with its revision if the commit has no tag.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	version := info.Main.Version
	if m := untagged.FindStringSubmatch(version); m != nil {
		version = m[1]
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && version == "" {
			version = s.Value[:min(len(s.Value), 12)]
		}
	}
	return strings.TrimSpace(path.Base(info.Main.Path) + " " + version)
}

// untagged matches the version that Go gives to a commit without a tag. It may end with the revision.
var untagged = regexp.MustCompile(`^(?:\(devel\)|v.*[-.]\d{14}-([0-9a-f]{12})(?:\+.*)?)$`)
