package admin

import "time"

// Worker is a worker on a queue, as its last heartbeat describes it. The times that it reports itself are by its own clock.
type Worker struct {
	Queue string `json:"queue,omitempty"`
	Name  string `json:"worker"` // as in status, and in leases
	// Version is that of the program, as it reports it.
	Version   string    `json:"version,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	// ClaimedAt is when it last claimed a job; zero if it has claimed none since it started.
	ClaimedAt   time.Time `json:"claimed_at,omitzero"`
	Concurrency int       `json:"concurrency,omitempty"`
	// Groups are those that it claims from: one that is empty stands for jobs without a group. None means every group.
	Groups []string `json:"groups,omitempty"`
	// Unhandled are kinds of jobs that it has met and has no handler for, up to MaxUnhandled, the first by name.
	Unhandled []string `json:"unhandled,omitempty"`
	// Running counts the jobs that it has claimed and not ended. The others count the attempts since it started.
	Running int   `json:"running"`
	Done    int64 `json:"done"`
	Failed  int64 `json:"failed"`
	Dead    int64 `json:"dead"`
	// Stopped means that it has ended in an orderly way.
	Stopped bool `json:"stopped,omitempty"`
	// SeenAt is when the database got the heartbeat, AliveUntil how long the worker counts as alive without another one.
	SeenAt     time.Time `json:"seen_at,omitzero"`
	AliveUntil time.Time `json:"alive_until,omitzero"`
}

// MaxUnhandled is how many kinds without a handler a worker reports.
const MaxUnhandled = 10

// State is stopped, silent (its heartbeats have ended), working or idle, at a time of the database.
func (w Worker) State(at time.Time) string {
	switch {
	case w.Stopped:
		return "stopped"
	case w.AliveUntil.Before(at):
		return "silent"
	case w.Running > 0:
		return "working"
	}
	return "idle"
}
