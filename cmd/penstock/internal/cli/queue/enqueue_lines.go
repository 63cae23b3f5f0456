package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/lines"
)

// jobLine is a job to enqueue as a line of JSON.
type jobLine struct {
	Kind      string            `json:"kind"`
	Key       string            `json:"key"`
	Group     string            `json:"group"`
	Priority  int               `json:"priority"`
	Delay     string            `json:"delay"`
	NotBefore time.Time         `json:"not_before"`
	DedupKey  string            `json:"dedup_key"`
	Headers   map[string]string `json:"headers"`

	UniqueKey   string              `json:"unique_key"`
	OnConflict  penstock.OnConflict `json:"on_conflict"`
	DebounceMax string              `json:"debounce_max"`
	MaxAttempts int                 `json:"max_attempts"`
	Timeout     string              `json:"timeout"`
	Deadline    time.Time           `json:"deadline"`
	lines.PayloadFields
}

var jobWords = lines.Words{Item: "job", Verb: "enqueue", Past: "enqueued", Doing: "enqueuing", Sample: `{"payload":"p","key":"k"}`}

// jobLines reads jobs whose delays count from now.
func jobLines(now func() time.Time) *lines.Kind[penstock.NewJob] {
	return &lines.Kind[penstock.NewJob]{
		Words: &jobWords,
		Parse: func(line []byte) (penstock.NewJob, error) { return parseJobLine(line, now()) },
		Size:  jobSize,
	}
}

func parseJobLine(line []byte, now time.Time) (penstock.NewJob, error) {
	var l jobLine
	if err := jobWords.Decode(line, &l); err != nil {
		return penstock.NewJob{}, err
	}
	payload, err := l.Bytes()
	if err != nil {
		return penstock.NewJob{}, err
	}
	j := penstock.NewJob{
		Payload: payload, Kind: l.Kind, Key: l.Key, Group: l.Group, Priority: l.Priority,
		NotBefore: l.NotBefore, DedupKey: l.DedupKey, Headers: l.Headers,
		UniqueKey: l.UniqueKey, OnConflict: l.OnConflict, MaxAttempts: l.MaxAttempts, Deadline: l.Deadline,
	}
	delay := time.Duration(0)
	for _, span := range []struct {
		name, text string
		to         *time.Duration
	}{{"delay", l.Delay, &delay}, {"debounce_max", l.DebounceMax, &j.DebounceMax}, {"timeout", l.Timeout, &j.Timeout}} {
		if span.text == "" {
			continue
		}
		if *span.to, err = cli.ParseSpan(span.text); err != nil {
			return penstock.NewJob{}, fmt.Errorf("%s is %q: %w", span.name, span.text, err)
		}
	}
	if l.Delay != "" {
		if !l.NotBefore.IsZero() {
			return penstock.NewJob{}, errors.New("has both delay and not_before: give one")
		}
		j.NotBefore = now.Add(delay)
	}
	return j, j.Validate()
}

// jobSize is about how many bytes the job takes in memory.
func jobSize(j *penstock.NewJob) int {
	carried := penstock.Message{Key: j.Key, Headers: j.Headers, Payload: j.Payload}
	return carried.Size()
}
