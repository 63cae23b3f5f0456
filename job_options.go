package penstock

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Headers that carry fields of a job. A message that becomes a job may carry them as well.
const (
	HeaderKind        = "penstock-kind"
	HeaderUniqueKey   = "penstock-unique-key"
	HeaderOnConflict  = "penstock-on-conflict"
	HeaderDebounceMax = "penstock-debounce-max" // seconds
	HeaderMaxAttempts = "penstock-max-attempts"
	HeaderTimeout     = "penstock-timeout"  // seconds
	HeaderDeadline    = "penstock-deadline" // RFC 3339, in UTC
	HeaderHolds       = "penstock-holds"
	HeaderWaitsFor    = "penstock-waits-for" // numbers with commas in between
	HeaderOnDead      = "penstock-on-dead"
)

// OnConflict decides what happens to a NewJob whose UniqueKey another job of the queue has that has not ended.
type OnConflict string

const (
	// OnConflictIgnore, the default, adds no job.
	OnConflictIgnore OnConflict = "ignore"
	// OnConflictReplace gives the payload, the headers and the NotBefore of the new job to the one that waits, which begins with its first
	// attempt again. It keeps its id, group and priority. A job that runs is not replaced: one more may wait behind it.
	OnConflictReplace OnConflict = "replace"
	// OnConflictDebounce is OnConflictReplace with DebounceMax.
	OnConflictDebounce OnConflict = "debounce"
)

// Validate returns a *FieldError for one that is unknown. The empty one is the default.
func (o OnConflict) Validate() error {
	switch o {
	case "", OnConflictIgnore, OnConflictReplace, OnConflictDebounce:
		return nil
	}
	return &FieldError{Field: "on conflict", Problem: fmt.Sprintf("is %q", string(o)), Hint: "use ignore, replace or debounce"}
}

// OnDead decides what a job that waits for barriers does while a job that holds one of them is a dead letter.
type OnDead string

const (
	// OnDeadWait, the default, waits until the dead letter was retried with success, or discarded.
	OnDeadWait OnDead = "wait"
	// OnDeadRun runs, as if the dead letter had ended.
	OnDeadRun OnDead = "run"
	// OnDeadCancel makes the job a dead letter as well, which explains why.
	OnDeadCancel OnDead = "cancel"
)

// Validate returns a *FieldError for one that is unknown. The empty one is the default.
func (o OnDead) Validate() error {
	switch o {
	case "", OnDeadWait, OnDeadRun, OnDeadCancel:
		return nil
	}
	return &FieldError{Field: "on dead", Problem: fmt.Sprintf("is %q", string(o)), Hint: "use wait, run or cancel"}
}

// jobOption is a field of NewJob that a header carries.
type jobOption struct {
	header, field string
	text          func(j *NewJob) string              // "" where it is not set
	read          func(j *NewJob, text string) string // sets it, or returns what would be right
}

var jobOptions = []jobOption{
	{HeaderKind, "kind", func(j *NewJob) string { return j.Kind }, func(j *NewJob, text string) string { j.Kind = text; return "" }},
	{HeaderUniqueKey, "unique key", func(j *NewJob) string { return j.UniqueKey }, func(j *NewJob, text string) string { j.UniqueKey = text; return "" }},
	{HeaderOnConflict, "on conflict", func(j *NewJob) string { return string(j.OnConflict) }, func(j *NewJob, text string) string { j.OnConflict = OnConflict(text); return "" }},
	{HeaderDebounceMax, "debounce max", func(j *NewJob) string { return seconds(j.DebounceMax) }, func(j *NewJob, text string) string { return readSeconds(&j.DebounceMax, text) }},
	{HeaderMaxAttempts, "max attempts", func(j *NewJob) string {
		if j.MaxAttempts == 0 {
			return ""
		}
		return strconv.Itoa(j.MaxAttempts)
	}, func(j *NewJob, text string) string {
		n, err := strconv.Atoi(text)
		if err != nil || strconv.Itoa(n) != text || n < 1 {
			return "use a number from 1 on"
		}
		j.MaxAttempts = n
		return ""
	}},
	{HeaderTimeout, "timeout", func(j *NewJob) string { return seconds(j.Timeout) }, func(j *NewJob, text string) string { return readSeconds(&j.Timeout, text) }},
	{HeaderDeadline, "deadline", func(j *NewJob) string {
		if j.Deadline.IsZero() {
			return ""
		}
		return j.Deadline.UTC().Format("2006-01-02T15:04:05.999999Z")
	}, func(j *NewJob, text string) (hint string) {
		deadline, ok := readTime(text)
		if !ok {
			return "use RFC 3339 in UTC, for example 2026-11-27T17:00:00Z"
		}
		j.Deadline = deadline
		return ""
	}},
	{HeaderHolds, "holds", func(j *NewJob) string {
		if j.Holds == 0 {
			return ""
		}
		return strconv.FormatInt(j.Holds, 10)
	}, func(j *NewJob, text string) (hint string) {
		j.Holds, hint = readBarrier(text)
		return hint
	}},
	{HeaderWaitsFor, "waits for", func(j *NewJob) string {
		texts := make([]string, len(j.WaitsFor))
		for i, b := range j.WaitsFor {
			texts[i] = strconv.FormatInt(b, 10)
		}
		return strings.Join(texts, ",")
	}, func(j *NewJob, text string) (hint string) {
		j.WaitsFor = nil
		for one := range strings.SplitSeq(text, ",") {
			b, hint := readBarrier(one)
			if hint != "" {
				return hint
			}
			j.WaitsFor = append(j.WaitsFor, b)
		}
		return ""
	}},
	{HeaderOnDead, "on dead", func(j *NewJob) string { return string(j.OnDead) }, func(j *NewJob, text string) string { j.OnDead = OnDead(text); return "" }},
}

// ReadHeaders sets the fields that headers carry, as those of a job that was read.
func (j *NewJob) ReadHeaders() {
	for _, o := range jobOptions {
		if text := j.Headers[o.header]; text != "" {
			o.read(j, text)
		}
	}
}

// AllHeaders returns the headers that a store writes: Headers, and those that carry other fields. It changes neither.
func (j *NewJob) AllHeaders() map[string]string {
	all := j.Headers
	for i := range jobOptions {
		if text := jobOptions[i].text(j); text != "" && all[jobOptions[i].header] != text {
			if len(all) == len(j.Headers) {
				all = maps.Clone(all)
			}
			if all == nil {
				all = make(map[string]string, 1)
			}
			all[jobOptions[i].header] = text
		}
	}
	return all
}

// Deduplicates: the job has a DedupKey or a UniqueKey, so it may turn out to be a duplicate.
func (j *NewJob) Deduplicates() bool {
	return j.DedupKey != "" || j.UniqueKey != "" || j.Headers[HeaderUniqueKey] != ""
}

// IsJobOption reports whether a header carries a field of a job.
func IsJobOption(header string) bool {
	return slices.ContainsFunc(jobOptions, func(o jobOption) bool { return o.header == header })
}

// validateOptions is the part of Validate that is about fields which headers may carry.
func (j *NewJob) validateOptions() error {
	all := *j
	for i := range jobOptions {
		o := &jobOptions[i]
		header, given := j.Headers[o.header]
		text := o.text(j)
		if header == "" && (!given || text != "" || o.header == HeaderKind) {
			continue
		}
		if header == "" {
			return &FieldError{Field: o.field, Problem: fmt.Sprintf("is empty in the header %s", o.header), Hint: "leave the header out"}
		}
		if text != "" && text != header {
			return &FieldError{Field: o.field, Problem: fmt.Sprintf("is %q, and the header %s says %q", text, o.header, header), Hint: "give one of them"}
		}
		if hint := o.read(&all, header); hint != "" {
			return &FieldError{Field: o.field, Problem: fmt.Sprintf("is %q", header), Hint: hint}
		}
	}
	if err := ValidateKind(all.Kind); err != nil {
		return err
	}
	if err := all.OnConflict.Validate(); err != nil {
		return err
	}
	if err := ValidateText("unique key", all.UniqueKey, MaxKeyBytes); err != nil {
		return err
	}
	if err := all.validateBarriers(); err != nil {
		return err
	}
	switch {
	case all.UniqueKey != "" && j.Key != "" && j.Key != all.UniqueKey:
		return &FieldError{Field: "unique key", Problem: fmt.Sprintf("is %q, and the key is %q", all.UniqueKey, j.Key), Hint: "leave the key out: a unique job has its unique key as key"}
	case all.OnConflict != "" && all.UniqueKey == "":
		return &FieldError{Field: "on conflict", Problem: "is given without a unique key", Hint: "give both"}
	case all.DebounceMax != 0 && all.OnConflict != OnConflictDebounce:
		return &FieldError{Field: "debounce max", Problem: "is given and on conflict is not debounce", Hint: "set on conflict to debounce, or leave it out"}
	case all.MaxAttempts < 0 || all.MaxAttempts > maxAttempts:
		return &FieldError{Field: "max attempts", Problem: fmt.Sprintf("is %d", all.MaxAttempts), Hint: fmt.Sprintf("use 1 to %d, or leave it out for the queue's", maxAttempts)}
	case !isSpan(all.Timeout):
		return &FieldError{Field: "timeout", Problem: fmt.Sprintf("is %s", all.Timeout), Hint: "use a millisecond to a year, or leave it out"}
	case !isSpan(all.DebounceMax):
		return &FieldError{Field: "debounce max", Problem: fmt.Sprintf("is %s", all.DebounceMax), Hint: "use a millisecond to a year, or leave it out"}
	case !all.Deadline.IsZero() && (all.Deadline.Year() < 1970 || all.Deadline.Year() > 9999):
		return &FieldError{Field: "deadline", Problem: fmt.Sprintf("is in the year %d", all.Deadline.Year()), Hint: "use one from 1970 to 9999, or the zero time for a job without a deadline"}
	case !all.Deadline.IsZero() && j.NotBefore.After(all.Deadline):
		return &FieldError{Field: "deadline", Problem: "is before not before", Hint: "give a later one, or no job: this one could never run"}
	}
	return nil
}

func (j *NewJob) validateBarriers() error {
	if err := j.OnDead.Validate(); err != nil {
		return err
	}
	replaces := j.OnConflict != "" && j.OnConflict != OnConflictIgnore
	switch {
	case j.Holds < 0 || j.Holds >= maxBarrier:
		return &FieldError{Field: "holds", Problem: fmt.Sprintf("is %d", j.Holds), Hint: "use a number that Barrier has returned"}
	case len(j.WaitsFor) > maxWaitsFor || slices.ContainsFunc(j.WaitsFor, func(b int64) bool { return b < 1 || b >= maxBarrier }):
		return &FieldError{Field: "waits for", Problem: fmt.Sprintf("is %d", j.WaitsFor), Hint: fmt.Sprintf("use up to %d numbers that Barrier has returned", maxWaitsFor)}
	case slices.Contains(j.WaitsFor, j.Holds):
		return &FieldError{Field: "waits for", Problem: "has the barrier that the job holds", Hint: "make another barrier for one of the two"}
	case j.OnDead != "" && len(j.WaitsFor) == 0:
		return &FieldError{Field: "on dead", Problem: "is given without waits for", Hint: "give both"}
	case len(j.WaitsFor) > 0 && !j.NotBefore.IsZero():
		return &FieldError{Field: "waits for", Problem: "is given, and not before", Hint: "leave one of them out: a job that waits for barriers runs once they are open"}
	case replaces && (j.Holds != 0 || len(j.WaitsFor) > 0):
		return &FieldError{Field: "on conflict", Problem: fmt.Sprintf("is %q, and the job has barriers", j.OnConflict), Hint: "leave the barriers out: a job that is replaced keeps its own"}
	}
	return nil
}

const (
	maxBarrier  = 1_000_000_000_000_000_000
	maxWaitsFor = 100
)

// readBarrier reads the number of a barrier.
func readBarrier(text string) (n int64, hint string) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n >= maxBarrier || text[0] == '+' || text[0] == '0' {
		return 0, "use a number that Barrier has returned"
	}
	return n, ""
}

// maxAttempts is far more than a job will have, and a number in every database.
const maxAttempts = 999_999_999

// isSpan: a header can carry it.
func isSpan(d time.Duration) bool {
	return d == 0 || d >= time.Millisecond && d <= 366*24*time.Hour
}

// seconds is a time span as headers carry it, to the millisecond. It is "" for 0.
func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(d.Milliseconds())/1000, 'f', -1, 64)
}

// readSeconds reads digits with up to six behind a point.
func readSeconds(d *time.Duration, text string) (hint string) {
	whole, fraction, point := strings.Cut(text, ".")
	if !digits(whole, 9) || point && !digits(fraction, 6) {
		return "use seconds, for example 30 or 0.5"
	}
	s, _ := strconv.ParseFloat(text, 64)
	*d = time.Duration(math.Round(s*1e6)) * time.Microsecond
	if *d == 0 {
		return "use more than 0 seconds"
	}
	return ""
}

func digits(s string, most int) bool {
	return s != "" && len(s) <= most && strings.Trim(s, "0123456789") == ""
}

// readTime reads what databases also understand: no zone but Z, and up to six digits behind the point.
func readTime(text string) (t time.Time, ok bool) {
	t, err := time.Parse(time.RFC3339, text)
	return t, err == nil && strings.HasSuffix(text, "Z") && len(text) <= len("2006-01-02T15:04:05.000000Z") && !strings.Contains(text, ",")
}

// Kind names the handler that takes the job. It is ” for a job without a kind.
func (j Job) Kind() string { return j.Headers[HeaderKind] }

// MaxAttempts is after how many attempts the job becomes a dead letter, 0 if the queue says that.
func (j Job) MaxAttempts() int { return j.option(HeaderMaxAttempts).MaxAttempts }

// Timeout is how long an attempt may take, 0 if the job does not say that.
func (j Job) Timeout() time.Duration { return j.option(HeaderTimeout).Timeout }

// Deadline is when the job is worth nothing any more; zero if there is none.
func (j Job) Deadline() time.Time { return j.option(HeaderDeadline).Deadline }

// option returns a NewJob with the field that a header carries.
func (j Job) option(header string) (read NewJob) {
	if j.Headers[header] != "" {
		read.Headers = j.Headers
		read.ReadHeaders()
	}
	return read
}
