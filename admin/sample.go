package admin

import "time"

// Samples are figures of a queue, or of a subscription, over time. The database keeps them, about one a minute.
type Samples struct {
	Queue        string   `json:"queue,omitempty"`
	Outbox       string   `json:"outbox,omitempty"`
	Subscription string   `json:"subscription,omitempty"`
	Points       []Sample `json:"points"` // the oldest first
}

// Sample is a point of Samples. In, Out and Failed are totals that grow: the difference of two samples counts what was between them. After a
// restore a total may be smaller than before.
type Sample struct {
	At time.Time `json:"at"`
	// In counts the numbers that the outbox has given to messages, or the queue to jobs, including those that were rolled back. A job gets
	// another one whenever it becomes ready again: after a retry, a delay, or a wait for its key.
	In int64 `json:"in"`
	// Out counts settled messages, or jobs that were done. Failed counts failed attempts at jobs; of a subscription it is 0. Those of jobs come
	// from the heartbeats of workers.
	Out    int64 `json:"out"`
	Failed int64 `json:"failed"`
	// Dead is how many dead letters there were, up to 1,000.
	Dead int64 `json:"dead_letters"`
	// OldestAge is the age of the oldest message that is not settled, or of the oldest ready job; 0 if there is none.
	OldestAge time.Duration `json:"oldest_age_ns"`
	// Done describes jobs that were done since the sample before, in a queue that keeps them: see penstock.QueueSettings.KeepDone. If there were
	// many it describes the last ones, at least a few hundred.
	Done []DoneSample `json:"done,omitempty"`
}

// DoneSample is how long done jobs took: all of them, and those of the most frequent kinds and workers.
type DoneSample struct {
	Of   string `json:"of,omitempty"` // kind or worker; empty: all
	Name string `json:"name,omitempty"`
	Jobs int64  `json:"jobs"`
	// Wait and Run are p50 and p99 in seconds: from enqueue to the first attempt, a delay included, and from a claim to its end. Wait is
	// empty if all had failed before.
	Wait []float64 `json:"wait,omitempty"`
	Run  []float64 `json:"run,omitempty"`
}
