package admin

import (
	"slices"
	"time"

	"github.com/penstock/penstock"
)

// DeadJobQuery chooses dead letters of one queue. Every field that is not zero
// narrows the choice.
type DeadJobQuery struct {
	Queue string
	IDs   []int64
	Kind  string
	Key   string
	Group string
	// Error is a part of the last error's text. Case matters.
	Error string
	// They became dead letters before DiedBefore and after DiedAfter.
	DiedBefore, DiedAfter time.Time
	// AfterID chooses only those with a higher id, to read page by page.
	AfterID int64
	// Limit is how many are returned, retried or discarded at most; 0 means no limit.
	Limit int
	// Bytes ends the result after the dead letter with which the payloads reach this size. 0 means no limit. Only
	// PostgreSQL and SQLite apply it.
	Bytes int
}

// OnlyIDs reports whether the ids are all that narrows the choice.
func (q DeadJobQuery) OnlyIDs() bool {
	return len(q.IDs) > 0 && q.Kind+q.Key+q.Group+q.Error == "" && q.DiedBefore.IsZero() && q.DiedAfter.IsZero() && q.AfterID == 0 && q.Limit == 0
}

// DeadJob is a job that was given up, with the reason.
type DeadJob struct {
	Job penstock.Job
	// Failures are the latest attempts, up to MaxFailures, oldest first.
	Failures []penstock.Failure
	At       time.Time
}

// Err returns the error text of the last attempt.
func (d DeadJob) Err() string { return penstock.LastError(d.Failures) }

// QueueStatus is one queue as `penstock status` shows it.
type QueueStatus struct {
	Queue string              `json:"queue"`
	Order penstock.QueueOrder `json:"order"`
	penstock.QueueSettings
	// Bytes is the size of the queue's own tables on disk, with indexes.
	Bytes    int64           `json:"bytes"`
	Segments []SegmentStatus `json:"segments,omitempty"`
	// DoneBytes is the size of the history: the jobs that are kept after they were acked. Bytes does not include it.
	DoneBytes int64 `json:"done_bytes,omitempty"`
	// Trouble explains why space is not given back: the last failure, and its place. It is empty if the
	// role may not read the store's own tables.
	Trouble []string `json:"trouble,omitempty"`
	// Ready counts jobs that may run now.
	Ready int64 `json:"ready"`
	// Running counts claimed jobs whose lease has not ended.
	Running int64 `json:"running"`
	// Delayed counts jobs whose time has not come, or that wait to be tried again.
	Delayed int64 `json:"delayed"`
	// Waiting counts jobs that wait for another job of their key, or for barriers.
	Waiting int64 `json:"waiting"`
	// DeadLetters counts the queue's dead letters.
	DeadLetters int64 `json:"dead_letters"`
	// Expired counts the jobs that have ended because their deadline had passed, since the queue was created.
	Expired int64 `json:"expired"`
	// OldestAge is the age of the oldest ready job; 0 if there is none.
	OldestAge time.Duration `json:"oldest_age_ns"`
	// AtLeast names the figures that were not counted to their end, by their names in JSON.
	AtLeast []string `json:"at_least,omitempty"`
	// Tokens is how many jobs Rate lets start now. It is nil without a rate, or if the role may not read it.
	Tokens *int `json:"tokens,omitempty"`
	// Groups is empty in the result of QueueStatus. Fill it from QueueGroups if you need it.
	Groups []GroupStatus `json:"groups,omitempty"`
}

// Cap limits figures to most and names those that reach it in AtLeast. If most is 0, all were counted to their end.
// more means that some groups with jobs were not counted, so Ready and Waiting are at least those numbers.
func (q *QueueStatus) Cap(most int64, more bool) {
	q.AtLeast = capped(most, map[string]*int64{"ready": &q.Ready, "running": &q.Running, "delayed": &q.Delayed, "waiting": &q.Waiting, "dead_letters": &q.DeadLetters})
	for _, name := range []string{"ready", "waiting"} {
		if more && !slices.Contains(q.AtLeast, name) {
			q.AtLeast = append(q.AtLeast, name)
		}
	}
}

// WaitsFor explains why no job of the queue may start now: pause, limit or rate. It is empty if one may.
func (q *QueueStatus) WaitsFor() string {
	switch {
	case q.Paused != nil && *q.Paused:
		return "pause"
	case q.MaxRunning != nil && *q.MaxRunning > 0 && q.Running >= int64(*q.MaxRunning):
		return "limit"
	case q.Tokens != nil && *q.Tokens == 0:
		return "rate"
	}
	return ""
}

// GroupStatus is one group of a queue. Its figures have the meaning that they have in QueueStatus.
type GroupStatus struct {
	Group       string        `json:"group"`
	Ready       int64         `json:"ready"`
	Running     int64         `json:"running"`
	Delayed     int64         `json:"delayed"`
	Waiting     int64         `json:"waiting"`
	DeadLetters int64         `json:"dead_letters"`
	OldestAge   time.Duration `json:"oldest_age_ns"`
	// More: the store has not counted all jobs or dead letters of the group, because there are
	// many.
	More bool `json:"more,omitempty"`
	// Limits is nil if the group has no policy, no default, and is not held.
	Limits *GroupLimits `json:"limits,omitempty"`
}

// GroupLimits shows which limits a group has, and how much of them is left.
type GroupLimits struct {
	// MaxRunning, Rate and Weight are those of the group's policy, or of the default.
	MaxRunning int           `json:"max_running,omitempty"`
	Rate       penstock.Rate `json:"rate,omitzero"`
	Weight     int           `json:"weight,omitempty"`
	// Tokens is how many jobs Rate lets start now.
	Tokens int `json:"tokens,omitempty"`
	Hold
}

// WaitsFor explains why no job of the group may start now: hold, limit or rate. It is empty if one may.
func (g *GroupStatus) WaitsFor() string {
	switch l := g.Limits; {
	case l == nil:
	case !l.Until.IsZero():
		return "hold"
	case l.MaxRunning > 0 && g.Running >= int64(l.MaxRunning):
		return "limit"
	case l.Rate.Jobs > 0 && l.Tokens == 0:
		return "rate"
	}
	return ""
}

// Hold shows until when no job of a group starts, and why. Until is zero if the group is not held.
type Hold struct {
	Until  time.Time `json:"held_until,omitzero"`
	Reason string    `json:"held_for,omitempty"`
}

// GroupPolicy is the policy of a group, and its hold. Of a group that is only held, the policy sets nothing.
type GroupPolicy struct {
	penstock.GroupPolicy
	Hold
}
