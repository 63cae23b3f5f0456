// Package doctor has the findings about a running Penstock, as data. A driver finds the facts that only it
// can see: see Examiner. The caller derives findings from the status.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/admin"
)

// Severity of a finding.
type Severity string

const (
	OK       Severity = "ok"
	Unknown  Severity = "unknown"  // not examined, because the role may not or it took too long
	Warning  Severity = "warning"  // it will cost something, or a person has to decide
	Critical Severity = "critical" // messages or jobs do not arrive, may be lost, or soon will
)

var gravest = []Severity{Critical, Warning, Unknown, OK}

// Finding is one thing that was examined.
type Finding struct {
	// Check names the examined thing, for programs. It does not change between versions.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	About    string   `json:"about,omitempty"` // the outbox, subscription, queue, table or sink
	Found    string   `json:"found"`           // the measurement, in a sentence
	Why      string   `json:"why,omitempty"`   // why it matters
	Next     string   `json:"next,omitempty"`  // the next step
	Measured []Figure `json:"measured,omitempty"`
}

// NotItsWork is why a right that only the report needs may stay missing.
const NotItsWork = "only the report lacks this: a relay, a worker and a program need no more than the grant for what they do"

// Figure is one measured value.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"` // s, bytes, per second; plain numbers have none
}

// The checks.
const (
	CheckConnection     = "connection"
	CheckServer         = "server"
	CheckSchema         = "schema"
	CheckPermissions    = "permissions"
	CheckSettings       = "settings"
	CheckPooler         = "pooler"
	CheckIsolation      = "isolation"
	CheckListen         = "listen"
	CheckLocks          = "row-locks"
	CheckAdvisory       = "advisory-locks"
	CheckClock          = "clock"
	CheckHorizon        = "vacuum-horizon"
	CheckSegments       = "segments"
	CheckDisk           = "disk"
	CheckSink           = "sink"
	CheckSubscription   = "subscription"
	CheckRelay          = "relay"
	CheckBacklog        = "backlog"
	CheckParked         = "parked-keys"
	CheckDead           = "dead-letters"
	CheckQueue          = "queue"
	CheckWorkers        = "workers"
	CheckFailing        = "failing-jobs"
	CheckKinds          = "kinds"
	CheckSchedules      = "schedules"
	CheckBarriers       = "barriers"
	CheckAdopted        = "adopted-table"
	CheckPlans          = "plans"
	CheckJournal        = "journal"
	CheckFile           = "file"
	CheckLock           = "write-lock"
	CheckIntegrity      = "integrity"
	CheckNotLookedAt    = "not-looked-at"
	defaultOld          = 5 * time.Minute
	defaultLockPatience = time.Second
)

// Options set when something is old, and which values are expected.
type Options struct {
	// Old is the age from which a transaction, a waiting message and a running job are findings. Default 5
	// minutes.
	Old time.Duration
	// Relays is true if the role must be able to run the relay, and Works names queues whose jobs it must be able to run.
	Relays bool
	Works  []string
	// LockPatience is how long to wait for another writer of a SQLite file. Default 1 s.
	LockPatience time.Duration
}

// SetDefaults fills in the unset fields.
func (o *Options) SetDefaults() {
	if o.Old <= 0 {
		o.Old = defaultOld
	}
	if o.LockPatience <= 0 {
		o.LockPatience = defaultLockPatience
	}
}

// Examined is the result of a driver.
type Examined struct {
	Findings []Finding
	Free     int64         // free bytes on the disk of the database; -1 means unknown
	Ahead    time.Duration // of the server's clock before this machine's
	Owner    string        // the role that owns the tables, if it is known
}

// Add adds a finding.
func (e *Examined) Add(check string, s Severity, found, why, next string, measured ...Figure) {
	e.Findings = append(e.Findings, Finding{Check: check, Severity: s, Found: found, Why: why, Next: next, Measured: measured})
}

// Examiner is a store that examines facts that only it can see. An error means that the database cannot be used.
type Examiner interface {
	Examine(ctx context.Context, o Options) (Examined, error)
	// Running lists leased jobs, up to most of a queue, or of each queue if the name is empty, those that run longest
	// first.
	Running(ctx context.Context, queue string, most int) ([]Running, error)
}

// Running is a job that a worker holds.
type Running struct {
	Queue   string
	ID      int64
	Lease   int64
	Worker  string
	Attempt int
	Age     time.Duration // since the job was enqueued
	Expired time.Duration // since its lease has ended; negative until then
	Held    time.Duration // since its lease began; 0 means unknown: an older version claimed it
	Report  []byte        // its worker's last report, as JSON
}

// StateOf is the state of a worker. It is silent also if the lease of one of its jobs has ended and no heartbeat came since: it has died, or hangs.
// A heartbeat says idle until the next one, so one that has taken a job since is working.
func StateOf(w *admin.Worker, at time.Time, jobs []Running) string {
	state := w.State(at)
	if (state == "working" || state == "idle") && slices.ContainsFunc(jobs, func(job Running) bool {
		return job.Queue == w.Queue && job.Worker == w.Name && job.Expired > 0 && at.Add(-job.Expired).After(w.SeenAt)
	}) {
		return "silent"
	}
	if state == "idle" && slices.ContainsFunc(jobs, func(job Running) bool { return job.Queue == w.Queue && job.Worker == w.Name }) {
		return "working"
	}
	return state
}

// UnsealedBarrier is a barrier that jobs wait for and that no program has sealed.
type UnsealedBarrier struct {
	Barrier int64
	Running int64     // jobs that hold it and have not ended
	Waiting int64     // jobs that wait for it
	Since   time.Time // when the first of these was enqueued
}

// BarrierReader is a store that lists such barriers of a queue.
type BarrierReader interface {
	UnsealedBarriers(ctx context.Context, queue string) ([]UnsealedBarrier, error)
}

// Who may end a holder. A role of Penstock's may end no session of another role.
const (
	MayEndSession  = "as the session's role, a member of pg_signal_backend, or a superuser for a superuser's session"
	MayEndPrepared = "as the role that prepared it or a superuser, in this database"
)

// HeldSegment is a sealed segment of an outbox that has rows. It is freed when nothing keeps it.
type HeldSegment struct {
	Outbox        string
	Slot          int
	Bytes         int64
	Of            int           // how many segments the outbox has
	Subscriptions []string      // that have not settled all of it
	Unread        bool          // the outbox has no subscription yet
	Retained      bool          // for replays, as the outbox is set
	Locked        string        // the session or prepared transaction that has it locked longest; empty: none
	Prepared      string        // the name of that prepared transaction, as an SQL literal; empty: it is a session
	LockedFor     time.Duration // how long that one's transaction has lasted; 0: less than a second, or the role is not shown it
}

// By lists the holders, in order. It is empty if nothing does; then the next maintenance frees
// it.
func (h *HeldSegment) By() (all []string) {
	for _, name := range h.Subscriptions {
		all = append(all, "subscription "+name)
	}
	if h.Unread {
		all = append(all, "no subscription: the outbox has none yet")
	}
	if h.Retained {
		all = append(all, "retention")
	}
	switch {
	case h.Locked != "" && h.LockedFor == 0:
		all = append(all, h.Locked)
	case h.Locked != "":
		all = append(all, fmt.Sprintf("%s, in a transaction for %v", h.Locked, h.LockedFor))
	}
	return all
}

// Count returns how many findings have that severity.
func Count(all []Finding, s Severity) (n int) {
	for i := range all {
		if all[i].Severity == s {
			n++
		}
	}
	return n
}

// Sort puts the gravest first, and keeps the order of equal ones.
func Sort(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return slices.Index(gravest, a.Severity) - slices.Index(gravest, b.Severity)
	})
}
