package penstock_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

func TestNewJobValidate(t *testing.T) {
	for _, c := range []struct {
		field string // "" if it is valid
		job   penstock.NewJob
	}{
		{"", penstock.NewJob{}},
		{"", penstock.NewJob{Payload: []byte{0, 0xff}, Key: "k", Group: strings.Repeat("g", penstock.MaxGroupBytes),
			Priority: penstock.MaxPriority, DedupKey: strings.Repeat("d", penstock.MaxDedupBytes), Headers: map[string]string{"a": "b"}, Kind: strings.Repeat("k", penstock.MaxKindBytes)}},
		{"", penstock.NewJob{Kind: "k", Headers: map[string]string{penstock.HeaderKind: "k"}}},
		{"kind", penstock.NewJob{Kind: "k", Headers: map[string]string{penstock.HeaderKind: "l"}}},
		{"kind", penstock.NewJob{Kind: strings.Repeat("k", penstock.MaxKindBytes+1)}},
		{"kind", penstock.NewJob{Kind: "a\tb"}},
		{"kind", penstock.NewJob{Headers: map[string]string{penstock.HeaderKind: "a\x00"}}},
		{"headers", penstock.NewJob{Kind: "k", Headers: map[string]string{"h": strings.Repeat("v", penstock.MaxHeaderBytes-10)}}},
		{"payload", penstock.NewJob{Payload: make([]byte, penstock.MaxPayloadBytes+1)}},
		{"key", penstock.NewJob{Key: strings.Repeat("k", penstock.MaxKeyBytes+1)}},
		{"key", penstock.NewJob{Key: "a\x00b"}},
		{"group", penstock.NewJob{Group: strings.Repeat("g", penstock.MaxGroupBytes+1)}},
		{"group", penstock.NewJob{Group: "\xff"}},
		{"dedup key", penstock.NewJob{DedupKey: strings.Repeat("d", penstock.MaxDedupBytes+1)}},
		{"priority", penstock.NewJob{Priority: penstock.MinPriority - 1}},
		{"priority", penstock.NewJob{Priority: penstock.MaxPriority + 1}},
		{"headers", penstock.NewJob{Headers: map[string]string{"": "x"}}},
		{"not before", penstock.NewJob{NotBefore: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"", penstock.NewJob{UniqueKey: "u", Key: "u", OnConflict: penstock.OnConflictDebounce, DebounceMax: time.Second, MaxAttempts: 1, Timeout: time.Millisecond, Deadline: time.Now()}},
		{"max attempts", penstock.NewJob{MaxAttempts: 1e9}},
		{"max attempts", penstock.NewJob{MaxAttempts: 2, Headers: map[string]string{penstock.HeaderMaxAttempts: "3"}}},
		{"timeout", penstock.NewJob{Timeout: -time.Second}},
		{"timeout", penstock.NewJob{Headers: map[string]string{penstock.HeaderTimeout: "0.0"}}},
		{"debounce max", penstock.NewJob{UniqueKey: "u", OnConflict: penstock.OnConflictReplace, DebounceMax: time.Second}},
		{"deadline", penstock.NewJob{Deadline: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"deadline", penstock.NewJob{Headers: map[string]string{penstock.HeaderDeadline: "2026-11-27T17:00:00.1234567Z"}}},
	} {
		wantField(t, c.job.Validate(), c.field)
	}
}

// Options become headers, and are read from them.
func TestNewJobOptionsAreHeaders(t *testing.T) {
	j := penstock.NewJob{
		Kind: "k", UniqueKey: "u", OnConflict: penstock.OnConflictDebounce, DebounceMax: time.Minute, MaxAttempts: 3, Timeout: 1500 * time.Millisecond,
		Deadline: time.Date(2026, 11, 27, 17, 0, 0, 120_000_000, time.FixedZone("", 3600)), Headers: map[string]string{"h": "1"},
	}
	headers := j.AllHeaders()
	want := map[string]string{"h": "1", "penstock-kind": "k", "penstock-unique-key": "u", "penstock-on-conflict": "debounce", "penstock-debounce-max": "60", "penstock-max-attempts": "3", "penstock-timeout": "1.5", "penstock-deadline": "2026-11-27T16:00:00.12Z"}
	if !maps.Equal(headers, want) || len(j.Headers) != 1 {
		t.Errorf("the headers are %v, want %v", headers, want)
	}
	read := penstock.NewJob{Headers: headers}
	read.ReadHeaders()
	if read.Kind != j.Kind || read.UniqueKey != j.UniqueKey || read.OnConflict != j.OnConflict || read.DebounceMax != j.DebounceMax || read.MaxAttempts != j.MaxAttempts || read.Timeout != j.Timeout || !read.Deadline.Equal(j.Deadline) {
		t.Errorf("read %+v, want %+v", read, j)
	}
	if err := read.Validate(); err != nil {
		t.Error(err)
	}
	job := penstock.Job{Headers: headers}
	if job.MaxAttempts() != 3 || job.Timeout() != j.Timeout || !job.Deadline().Equal(j.Deadline) {
		t.Errorf("the job has %d, %s, %s", job.MaxAttempts(), job.Timeout(), job.Deadline())
	}
}

func TestClaimValidate(t *testing.T) {
	for _, c := range []struct {
		field string
		claim driver.Claim
	}{
		{"", driver.Claim{Jobs: 1, Lease: time.Nanosecond}},
		{"", driver.Claim{Jobs: driver.MaxClaim, Lease: time.Hour, Group: "g", Worker: "w"}},
		{"jobs", driver.Claim{Lease: time.Second}},
		{"jobs", driver.Claim{Jobs: driver.MaxClaim + 1, Lease: time.Second}},
		{"lease", driver.Claim{Jobs: 1}},
		{"lease", driver.Claim{Jobs: 1, Lease: -time.Second}},
		{"group", driver.Claim{Jobs: 1, Lease: time.Second, Group: "\x00"}},
		{"worker", driver.Claim{Jobs: 1, Lease: time.Second, Worker: "\xff"}},
	} {
		wantField(t, c.claim.Validate(), c.field)
	}
}

func TestValidateQueueName(t *testing.T) {
	wantField(t, penstock.ValidateQueueName("emails"), "")
	wantField(t, penstock.ValidateQueueName(""), "queue")
	wantField(t, penstock.ValidateQueueName(strings.Repeat("q", 49)), "queue")
}

// wantField requires a *FieldError with a hint about field, or no error if field is empty.
func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var got *penstock.FieldError
	switch {
	case field == "" && err != nil:
		t.Errorf("got %v, want no error", err)
	case field != "" && (!errors.As(err, &got) || got.Field != field || got.Hint == ""):
		t.Errorf("got %v, want an error about %s with a hint", err, field)
	}
}
