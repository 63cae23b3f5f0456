// Package conformance has the values of the protocol by which one suite drives a client of any language, see README.md. Its
// tests are the suite. The program in clients/go speaks the protocol for Go.
package conformance

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
)

// MaxLine is the longest line that either side writes.
const MaxLine = 16 << 20

// ID is a number that is a string in JSON, because many languages read numbers as floating point.
type ID int64

// MarshalText implements encoding.TextMarshaler.
func (i ID) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(i), 10), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *ID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	*i = ID(n)
	return err
}

// IDs converts numbers to IDs.
func IDs(numbers []int64) []ID {
	ids := make([]ID, len(numbers))
	for i, n := range numbers {
		ids[i] = ID(n)
	}
	return ids
}

// Numbers is the reverse.
func Numbers(ids []ID) []int64 {
	numbers := make([]int64, len(ids))
	for i, id := range ids {
		numbers[i] = int64(id)
	}
	return numbers
}

// Message is a message to publish.
type Message struct {
	Payload []byte            `json:"payload"`
	ID      string            `json:"id,omitempty"`
	Key     string            `json:"key,omitempty"`
	Topic   string            `json:"topic,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// NewJob is a job to enqueue.
type NewJob struct {
	Payload   []byte            `json:"payload"`
	Kind      string            `json:"kind,omitempty"`
	Key       string            `json:"key,omitempty"`
	GroupKey  string            `json:"group_key,omitempty"`
	Priority  int               `json:"priority,omitempty"`
	NotBefore *time.Time        `json:"not_before,omitempty"`
	DedupKey  string            `json:"dedup_key,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`

	UniqueKey   string              `json:"unique_key,omitempty"`
	OnConflict  penstock.OnConflict `json:"on_conflict,omitempty"`
	DebounceMax int64               `json:"debounce_max_ms,omitempty"`
	MaxAttempts int                 `json:"max_attempts,omitempty"`
	Timeout     int64               `json:"timeout_ms,omitempty"`
	Deadline    *time.Time          `json:"deadline,omitempty"`
	Holds       ID                  `json:"holds,omitempty"`
	WaitsFor    []ID                `json:"waits_for,omitempty"`
	OnDead      penstock.OnDead     `json:"on_dead,omitempty"`
}

// Enqueued is the result of enqueueing a job.
type Enqueued struct {
	ID           ID   `json:"id"`
	Deduplicated bool `json:"deduplicated"`
}

// Job is a claimed job.
type Job struct {
	ID         ID                `json:"id"`
	Kind       string            `json:"kind"`
	Key        string            `json:"key,omitempty"`
	GroupKey   string            `json:"group_key,omitempty"`
	Priority   int               `json:"priority"`
	Attempt    int               `json:"attempt"`
	CreatedAt  time.Time         `json:"created_at"`
	Headers    map[string]string `json:"headers,omitempty"`
	Payload    []byte            `json:"payload"`
	Report     string            `json:"report,omitempty"`
	Lease      ID                `json:"lease"`
	LeaseUntil time.Time         `json:"lease_until"`
}

// OfJob converts a job that a queue returns.
func OfJob(j penstock.Job) Job {
	return Job{ID: ID(j.ID), Kind: j.Kind(), Key: j.Key, GroupKey: j.Group, Priority: j.Priority, Attempt: j.Attempt, CreatedAt: j.CreatedAt.UTC(),
		Headers: j.Headers, Payload: append([]byte{}, j.Payload...), Report: string(j.Report), Lease: ID(j.Lease), LeaseUntil: j.LeaseUntil.UTC()}
}

// Job is the reverse. A kind that differs from the job's header takes its place, so that a test sees it.
func (j Job) Job() penstock.Job {
	if j.Kind != j.Headers[penstock.HeaderKind] {
		j.Headers = maps.Clone(j.Headers)
		if j.Headers == nil {
			j.Headers = map[string]string{}
		}
		j.Headers[penstock.HeaderKind] = "the client says " + j.Kind
	}
	if len(j.Headers) == 0 {
		j.Headers = nil
	}
	made := penstock.Job{ID: int64(j.ID), Key: j.Key, Group: j.GroupKey, Priority: j.Priority, Attempt: j.Attempt, CreatedAt: j.CreatedAt,
		Headers: j.Headers, Payload: j.Payload, Lease: int64(j.Lease), LeaseUntil: j.LeaseUntil}
	if j.Report != "" {
		made.Report = []byte(j.Report)
	}
	return made
}

// Claimed is the result of a claim, and whether a limit of running jobs is close.
type Claimed struct {
	Jobs  []Job `json:"jobs"`
	Acked []ID  `json:"acked"`
	Full  bool  `json:"full"`
}

// Stepped is the result of a step, and whether it ran.
type Stepped struct {
	Ran    bool   `json:"ran"`
	Result string `json:"result"`
}

// Error is why a request failed: the database's error, or the field that no database could carry.
type Error struct {
	Message  string `json:"message"`
	SQLState string `json:"sqlstate,omitempty"`
	Field    string `json:"field,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Event is a program's report about a handler.
type Event struct {
	Event  string `json:"event"` // job or aborted
	Worker string `json:"worker"`
	Call   string `json:"call"`
	Tx     string `json:"tx,omitempty"`
	Job    *Job   `json:"job,omitempty"`
	Cause  string `json:"cause,omitempty"` // lease_lost, stopping or timeout
}

// Hello is a program's report about itself.
type Hello struct {
	Language string   `json:"language"`
	Version  string   `json:"version"`
	Kinds    []string `json:"kinds"`
}

// arguments are the protocol's arguments by the names of fields in Go.
var arguments = []struct{ field, argument string }{
	{"payload", "payload"}, {"id", "id"}, {"key", "key"}, {"topic", "topic"}, {"headers", "headers"},
	{"group", "group_key"}, {"dedup key", "dedup_key"}, {"priority", "priority"}, {"not before", "not_before"},
	{"unique key", "unique_key"}, {"on conflict", "on_conflict"}, {"holds", "holds"}, {"waits for", "waits_for"}, {"on dead", "on_dead"},
}

// ArgumentOf is the protocol's argument for the field of a penstock.FieldError. FieldOf is the
// reverse.
func ArgumentOf(field string) string {
	for _, a := range arguments {
		if strings.HasPrefix(field, a.field) {
			return a.argument
		}
	}
	return field
}

func FieldOf(argument string) string {
	for _, a := range arguments {
		if a.argument == argument {
			return a.field
		}
	}
	return argument
}
