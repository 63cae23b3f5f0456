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
	Key   string
	Group string
	// Error is contained in the last error, in the same case.
	Error string
	// DiedBefore and DiedAfter bound when they became dead letters.
	DiedBefore, DiedAfter time.Time
	// AfterID leaves out what is up to it, for reading page by page.
	AfterID int64
	// Limit is the most that are returned, retried or discarded; 0 means no limit.
	Limit int
	// Bytes ends what is returned with the one by which payloads have so many; 0 means no limit. PostgreSQL and SQLite keep to it.
	Bytes int
}

// DeadJob is a job that was given up, with the reason.
type DeadJob struct {
	Job penstock.Job
	// Failures are the latest attempts, up to MaxFailures, oldest first.
	Failures []penstock.Failure
	At       time.Time
}

// Err is why the last attempt failed.
func (d DeadJob) Err() string { return penstock.LastError(d.Failures) }

// QueueStatus is one queue as `penstock status` shows it.
type QueueStatus struct {
	Queue string              `json:"queue"`
	Order penstock.QueueOrder `json:"order"`
	penstock.QueueSettings
	// Bytes is what the queue's own tables take on disk, with indexes.
	Bytes    int64           `json:"bytes"`
	Segments []SegmentStatus `json:"segments,omitempty"`
	// DoneBytes is what kept jobs that are done take beside that.
	DoneBytes int64 `json:"done_bytes,omitempty"`
	// Trouble says why space is not given back: what failed last, and where. Only who may
	// read the store's own tables is told.
	Trouble []string `json:"trouble,omitempty"`
	// Ready counts jobs that may run now, Running those that are claimed and whose lease has not ended,
	// Delayed those whose time has not come or that wait to be tried again, Waiting those that
	// wait for another job of their key.
	Ready   int64 `json:"ready"`
	Running int64 `json:"running"`
	Delayed int64 `json:"delayed"`
	Waiting int64 `json:"waiting"`
	// DeadLetters kept.
	DeadLetters int64 `json:"dead_letters"`
	// OldestAge is the age of the oldest ready job, 0 without one.
	OldestAge time.Duration `json:"oldest_age_ns"`
	// AtLeast names the figures, as JSON has them, that were not counted to their end.
	AtLeast []string `json:"at_least,omitempty"`
	// Groups are filled in by whoever asks for them, see QueueGroups.
	Groups []GroupStatus `json:"groups,omitempty"`
}

// Cap cuts figures that were counted up to most, and names them in AtLeast; more means that there are jobs in groups
// that were not looked at. 0 means that all were counted.
func (q *QueueStatus) Cap(most int64, more bool) {
	q.AtLeast = capped(most, map[string]*int64{"ready": &q.Ready, "running": &q.Running, "delayed": &q.Delayed, "waiting": &q.Waiting, "dead_letters": &q.DeadLetters})
	for _, name := range []string{"ready", "waiting"} {
		if more && !slices.Contains(q.AtLeast, name) {
			q.AtLeast = append(q.AtLeast, name)
		}
	}
}

// GroupStatus is one group of a queue. Its figures mean what they do in QueueStatus.
type GroupStatus struct {
	Group       string        `json:"group"`
	Ready       int64         `json:"ready"`
	Running     int64         `json:"running"`
	Delayed     int64         `json:"delayed"`
	Waiting     int64         `json:"waiting"`
	DeadLetters int64         `json:"dead_letters"`
	OldestAge   time.Duration `json:"oldest_age_ns"`
	// More: a store that does not count long groups to their end has left out jobs, or dead
	// letters.
	More bool `json:"more,omitempty"`
}
