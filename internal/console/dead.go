package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/resend"
)

// Filter chooses dead letters; what is empty does not narrow.
type Filter struct {
	Numbers    []int64   `json:"numbers,omitempty"` // ids of jobs, seqs of messages
	Key        string    `json:"key,omitempty"`
	Group      string    `json:"group,omitempty"` // of jobs
	Topic      string    `json:"topic,omitempty"` // of messages
	Error      string    `json:"error,omitempty"` // is contained in the last one
	DiedBefore time.Time `json:"died_before,omitzero"`
	DiedAfter  time.Time `json:"died_after,omitzero"`
}

var filterParams = []string{"number", "key", "group", "topic", "error", "died_before", "died_after"}

// filterOf reads a filter from a query.
func filterOf(v url.Values) (f Filter, err error) {
	f = Filter{Key: v.Get("key"), Group: v.Get("group"), Topic: v.Get("topic"), Error: v.Get("error")}
	for _, text := range v["number"] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return f, &penstock.FieldError{Field: "number", Problem: fmt.Sprintf("is %q", text), Hint: "give the id of a job, or the seq of a message"}
		}
		f.Numbers = append(f.Numbers, n)
	}
	for name, to := range map[string]*time.Time{"died_before": &f.DiedBefore, "died_after": &f.DiedAfter} {
		if text := v.Get(name); text != "" {
			if *to, err = time.Parse(time.RFC3339, text); err != nil {
				return f, &penstock.FieldError{Field: name, Problem: fmt.Sprintf("is %q", text), Hint: "write a time as 2026-01-31T10:00:00Z"}
			}
		}
	}
	return f, nil
}

// values are the filter in a query.
func (f Filter) values() url.Values {
	v := url.Values{}
	for _, n := range f.Numbers {
		v.Add("number", strconv.FormatInt(n, 10))
	}
	for name, text := range map[string]string{"key": f.Key, "group": f.Group, "topic": f.Topic, "error": f.Error} {
		if text != "" {
			v.Set(name, text)
		}
	}
	for name, at := range map[string]time.Time{"died_before": f.DiedBefore, "died_after": f.DiedAfter} {
		if !at.IsZero() {
			v.Set(name, at.Format(time.RFC3339))
		}
	}
	return v
}

// DeadLetter is one of a queue or a subscription.
type DeadLetter struct {
	Number    int64              `json:"number"`
	ID        string             `json:"id,omitempty"` // of a message
	Key       string             `json:"key"`
	Group     string             `json:"group,omitempty"`
	Topic     string             `json:"topic,omitempty"`
	Attempts  int                `json:"attempts"`
	Held      bool               `json:"held,omitempty"`
	CreatedAt time.Time          `json:"created_at"`
	DiedAt    time.Time          `json:"died_at"`
	Error     string             `json:"error"`
	Failures  []penstock.Failure `json:"failures"`
	Contents
}

// Contents are what producers gave, as far as they are shown.
type Contents struct {
	Headers       map[string]string `json:"headers,omitempty"`
	PayloadBytes  int64             `json:"payload_bytes"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
}

// box is where dead letters are.
type box interface {
	page(ctx context.Context, f Filter, after int64, limit int) ([]DeadLetter, error)
	causes(ctx context.Context, f Filter, limit int) ([]penstock.DeadCause, error)
	retry(ctx context.Context, f Filter, limit int) (int, error)
	discard(ctx context.Context, f Filter, limit int) (int, error)
	numbers(ctx context.Context, after int64) ([]int64, error)
	// resend makes new ones with the contents of the dead letters of these numbers.
	resend(ctx context.Context, numbers []int64) (ids []string, err error)
	name() (kind, name string)
}

// inWindows has a filter looked at by visit for a few dead letters after the other, because none but numbers has an index: what
// is seldom, or not there, would keep the database reading. It ends with the last one, when visit has enough, or after a while:
// then after is where to go on, and not 0.
func inWindows(ctx context.Context, b box, f Filter, after int64, patience time.Duration, visit func(f Filter) (enough bool, err error)) (looked, goOn int64, err error) {
	end := time.Now().Add(patience)
	for {
		numbers, err := b.numbers(ctx, after)
		if err != nil || len(numbers) == 0 {
			return looked, 0, err
		}
		f.Numbers = numbers
		enough, err := visit(f)
		if err != nil {
			return looked, after, err
		}
		looked, after = looked+int64(len(numbers)), numbers[len(numbers)-1]
		if len(numbers) < window {
			return looked, 0, nil
		}
		if enough || time.Now().After(end) {
			return looked, after, nil
		}
	}
}

// narrows reports whether some are to be looked for among all.
func (f Filter) narrows() bool { return len(f.Numbers) == 0 && len(f.values()) > 0 }

type jobBox struct {
	c     *Console
	queue string
}

func (b jobBox) name() (string, string) { return "queue", b.queue }

func (b jobBox) numbers(ctx context.Context, after int64) ([]int64, error) {
	return b.c.o.Store.DeadNumbers(ctx, b.queue, "", after, window)
}

func (b jobBox) query(f Filter, limit int) penstock.DeadJobQuery {
	return penstock.DeadJobQuery{Queue: b.queue, IDs: f.Numbers, Key: f.Key, Group: f.Group, Error: f.Error, DiedBefore: f.DiedBefore, DiedAfter: f.DiedAfter, Limit: limit}
}

func (b jobBox) page(ctx context.Context, f Filter, after int64, limit int) ([]DeadLetter, error) {
	q := b.query(f, limit)
	q.AfterID = after
	found, err := b.c.o.Store.DeadJobs(ctx, q)
	all := make([]DeadLetter, len(found))
	for i, d := range found {
		j := &d.Job
		all[i] = DeadLetter{Number: j.ID, Key: j.Key, Group: j.Group, Attempts: attempts(j.Attempt, d.Failures), CreatedAt: j.CreatedAt, DiedAt: d.At, Error: d.Err(), Failures: orNone(d.Failures), Contents: b.c.contents(j.Headers, j.Payload)}
	}
	return all, err
}

func (b jobBox) causes(ctx context.Context, f Filter, limit int) ([]penstock.DeadCause, error) {
	return b.c.o.Store.DeadJobCauses(ctx, b.query(f, limit))
}

func (b jobBox) retry(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.RetryDeadJobs(ctx, b.query(f, limit))
}

func (b jobBox) discard(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.DiscardDeadJobs(ctx, b.query(f, limit))
}

func (b jobBox) resend(ctx context.Context, numbers []int64) (ids []string, err error) {
	return resend.Jobs(ctx, b.c.o.Store, b.queue, numbers)
}

type messageBox struct {
	c                    *Console
	outbox, subscription string
}

func (b messageBox) name() (string, string) { return "subscription", b.outbox + "/" + b.subscription }

func (b messageBox) numbers(ctx context.Context, after int64) ([]int64, error) {
	return b.c.o.Store.DeadNumbers(ctx, b.outbox, b.subscription, after, window)
}

func (b messageBox) query(f Filter, limit int) penstock.DeadLetterQuery {
	return penstock.DeadLetterQuery{Outbox: b.outbox, Subscription: b.subscription, Seqs: f.Numbers, Key: f.Key, Topic: f.Topic, Error: f.Error, DiedBefore: f.DiedBefore, DiedAfter: f.DiedAfter, Limit: limit}
}

func (b messageBox) page(ctx context.Context, f Filter, after int64, limit int) ([]DeadLetter, error) {
	q := b.query(f, limit)
	q.AfterSeq = after
	found, err := b.c.o.Store.DeadLetters(ctx, q)
	all := make([]DeadLetter, len(found))
	for i, d := range found {
		m := &d.Message
		all[i] = DeadLetter{Number: m.Seq, ID: m.ID, Key: m.Key, Topic: m.Topic, Attempts: attempts(m.Attempt, d.Failures), Held: d.Held, CreatedAt: m.CreatedAt, DiedAt: d.At, Error: d.Err(), Failures: orNone(d.Failures), Contents: b.c.contents(m.Headers, m.Payload)}
	}
	return all, err
}

func (b messageBox) causes(ctx context.Context, f Filter, limit int) ([]penstock.DeadCause, error) {
	return b.c.o.Store.DeadLetterCauses(ctx, b.query(f, limit))
}

func (b messageBox) retry(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.RetryDeadLetters(ctx, b.query(f, limit))
}

func (b messageBox) resend(ctx context.Context, numbers []int64) (ids []string, err error) {
	return resend.Messages(ctx, b.c.o.Store, b.outbox, b.subscription, numbers)
}

func (b messageBox) discard(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.DiscardDeadLetters(ctx, b.query(f, limit))
}

func attempts(n int, failures []penstock.Failure) int {
	if len(failures) > 0 {
		return max(n, failures[len(failures)-1].Attempt)
	}
	return n
}

// mostShown of a payload are in an answer: a page of large ones would be too much for whoever looks.
const mostShown = 64 << 10

const redacted = "[redacted]"

func orNone(failures []penstock.Failure) []penstock.Failure {
	return append([]penstock.Failure{}, failures...)
}

// contents are headers and payload as they may be shown.
func (c *Console) contents(headers map[string]string, payload []byte) (d Contents) {
	d.Headers, d.PayloadBytes = headers, int64(len(payload))
	for name := range d.Headers {
		if c.hides(name) {
			d.Headers[name] = redacted
		}
	}
	var member any
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber() // as they were written
	if len(c.o.Redact) > 0 && utf8.Valid(payload) && decoder.Decode(&member) == nil && !decoder.More() {
		payload, _ = json.Marshal(c.redact(member))
	}
	payload = payload[:min(len(payload), mostShown)]
	for cut := 0; cut < utf8.UTFMax && d.PayloadBytes > mostShown && !utf8.Valid(payload); cut++ { // not within a character
		payload = payload[:len(payload)-1]
	}
	if text := string(payload); utf8.ValidString(text) {
		d.Payload = &text
	} else {
		d.PayloadBase64 = payload
	}
	return d
}

func (c *Console) hides(name string) bool {
	return slices.ContainsFunc(c.o.Redact, func(hidden string) bool { return strings.EqualFold(hidden, name) })
}

func (c *Console) redact(member any) any {
	switch v := member.(type) {
	case map[string]any:
		for name := range v {
			if c.hides(name) {
				v[name] = redacted
			} else {
				v[name] = c.redact(v[name])
			}
		}
	case []any:
		for i := range v {
			v[i] = c.redact(v[i])
		}
	}
	return member
}

// Cause is why some dead letters died: their errors differ in numbers and ids only.
type Cause struct {
	Cause   string `json:"cause"`
	Example string `json:"example"`
	// Contains is part of all their errors: as error in a filter it chooses them. Empty if there is no such part.
	Contains string    `json:"contains,omitempty"`
	Letters  int64     `json:"letters"`
	First    time.Time `json:"first_died_at"`
	Last     time.Time `json:"last_died_at"`
}

// Causes are those of the first so many dead letters that match.
type Causes struct {
	Causes []Cause `json:"causes"`
	// Letters match; more says that not all were looked at.
	Letters int64 `json:"letters"`
	More    bool  `json:"more"`
}

var varies = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|\d+(?:[.:]\d+)*`)

func (c *Console) causesOf(ctx context.Context, b box, f Filter) (Causes, error) {
	const most = 10_000
	all := Causes{Causes: []Cause{}}
	var found []penstock.DeadCause
	read := func(f Filter) (bool, error) {
		some, err := b.causes(ctx, f, most)
		for _, one := range some {
			all.Letters += one.Letters
		}
		found = append(found, some...)
		return all.Letters >= most, err
	}
	enough, err := false, error(nil)
	if f.narrows() {
		_, goOn, failed := inWindows(ctx, b, f, 0, lookFor, read)
		enough, err = goOn > 0, failed
	} else {
		enough, err = read(f)
	}
	if err != nil {
		return Causes{}, err
	}
	all.More = enough
	at := map[string]int{}
	for _, one := range found {
		name := varies.ReplaceAllString(one.Error, "…")
		i, known := at[name]
		if !known {
			i = len(all.Causes)
			at[name] = i
			all.Causes = append(all.Causes, Cause{Cause: name, Example: one.Error, Contains: longest(name), First: one.First, Last: one.Last})
		}
		k := &all.Causes[i]
		k.Letters += one.Letters
		if one.First.Before(k.First) {
			k.First = one.First
		}
		if one.Last.After(k.Last) {
			k.Last = one.Last
		}
	}
	slices.SortStableFunc(all.Causes, func(a, b Cause) int { return int(b.Letters - a.Letters) })
	return all, nil
}

// longest is the longest part of a cause that does not vary.
func longest(cause string) (part string) {
	for _, s := range strings.Split(cause, "…") {
		if len(s) > len(part) {
			part = s
		}
	}
	return part
}

// Done is what became of an action on all that match, or would.
type Done struct {
	Matched int64 `json:"matched"`
	Done    int64 `json:"done"`
	// Looked at were so many, if a filter narrows.
	Looked int64 `json:"looked_at"`
	// More: there are others, or may be; call again, with after if there is one.
	More   bool  `json:"more"`
	After  int64 `json:"after,omitempty"`
	DryRun bool  `json:"dry_run"`
}

// onAll does something with all that match behind a number, in statements of a few each. What dies again meanwhile is not taken
// twice: no more are taken than matched at first.
func (c *Console) onAll(ctx context.Context, b box, f Filter, after int64, discard, dryRun bool) (d Done, err error) {
	act, patience := b.retry, lookFor
	if discard {
		act = b.discard
	}
	if !dryRun {
		patience = actFor
	}
	some := func(f Filter) (bool, error) {
		found, err := b.causes(ctx, f, mostAtOnce)
		if err != nil {
			return false, err
		}
		left := int64(0)
		for _, one := range found {
			left += one.Letters
		}
		d.Matched += left
		for !dryRun && left > 0 {
			n, err := act(ctx, f, int(min(atOnce, left)))
			d.Done += int64(n)
			if left -= int64(n); err != nil || n == 0 {
				return false, err
			}
		}
		return d.Matched >= mostAtOnce, nil
	}
	d.DryRun = dryRun
	if f.narrows() {
		d.Looked, d.After, err = inWindows(ctx, b, f, after, patience, some)
		d.More = d.After > 0
	} else {
		d.More, err = some(f)
	}
	return d, err
}

// resend sends dead letters again as new. They are sent before they are discarded: if it breaks off between, both are there.
func (c *Console) resend(ctx context.Context, b box, r Resend) (d Resent, err error) {
	if n := len(r.Numbers); n < 1 || n > mostResent {
		return d, &penstock.FieldError{Field: "numbers", Problem: fmt.Sprintf("are %d", n), Hint: fmt.Sprintf("give 1 to %d numbers of dead letters", mostResent)}
	}
	slices.Sort(r.Numbers)
	r.Numbers = slices.Compact(r.Numbers)
	if d.IDs, err = b.resend(ctx, r.Numbers); err != nil || !r.Discard {
		return d, err
	}
	n, err := b.discard(ctx, Filter{Numbers: r.Numbers}, len(r.Numbers))
	d.Discarded = int64(n)
	return d, err
}

// mostResent at once: all of them are in memory.
const mostResent = 100

// Text is for pages.
func (d Contents) Text() string { return *d.Payload }
