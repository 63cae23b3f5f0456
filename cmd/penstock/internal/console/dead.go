package console

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/resend"
)

// Filter chooses dead letters; empty fields do not narrow the choice.
type Filter struct {
	Numbers    []int64   `json:"numbers,omitempty"` // ids of jobs, seqs of messages
	Kind       string    `json:"kind,omitempty"`    // of jobs
	Key        string    `json:"key,omitempty"`
	Group      string    `json:"group,omitempty"` // of jobs
	Topic      string    `json:"topic,omitempty"` // of messages
	Error      string    `json:"error,omitempty"` // part of the last error
	DiedBefore time.Time `json:"died_before,omitzero"`
	DiedAfter  time.Time `json:"died_after,omitzero"`
}

var filterParams = []string{"number", "kind", "key", "group", "topic", "error", "died_before", "died_after"}

// filterOf reads a filter from a query.
func filterOf(v url.Values) (f Filter, err error) {
	f = Filter{Kind: v.Get("kind"), Key: v.Get("key"), Group: v.Get("group"), Topic: v.Get("topic"), Error: v.Get("error")}
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
	for name, text := range map[string]string{"kind": f.Kind, "key": f.Key, "group": f.Group, "topic": f.Topic, "error": f.Error} {
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

// DeadLetter is a dead letter of a queue or a subscription.
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

// inWindows calls visit with a filter for a few dead letters at a time, because only numbers have an index. A search for rare
// or missing ones would keep the database reading. It ends with the last one, when visit has enough, or after a while. In the
// latter case it returns after, which is not 0, where to continue.
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

// narrows reports whether the filter leaves out any dead letters.
func (f Filter) narrows() bool { return len(f.Numbers) == 0 && len(f.values()) > 0 }

// Done is the result, or the expected result, of an action on all matching ones.
type Done struct {
	Matched int64 `json:"matched"`
	Done    int64 `json:"done"`
	// Looked is how many were read, if a filter narrows the choice.
	Looked int64 `json:"looked_at"`
	// More: there are others, or may be. Call again, with after if it is set.
	More   bool  `json:"more"`
	After  int64 `json:"after,omitempty"`
	DryRun bool  `json:"dry_run"`
}

// onAll acts on all matching ones behind a number, in statements of a few each. Letters that die again meanwhile are not taken
// twice: it takes no more than matched at first.
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
	if f.narrows() || after > 0 && len(f.Numbers) == 0 {
		d.Looked, d.After, err = inWindows(ctx, b, f, after, patience, some)
		d.More = d.After > 0
	} else {
		d.More, err = some(f)
	}
	return d, err
}

// resend sends dead letters again as new. They are sent before they are discarded: if it is interrupted in between, both
// exist.
func (c *Console) resend(ctx context.Context, b box, r Resend) (d Resent, err error) {
	if n := len(r.Numbers); n < 1 || n > mostResent {
		return d, &penstock.FieldError{Field: "numbers", Problem: fmt.Sprintf("are %d", n), Hint: fmt.Sprintf("give 1 to %d numbers of dead letters", mostResent)}
	}
	slices.Sort(r.Numbers)
	r.Numbers = slices.Compact(r.Numbers)
	var discard resend.Discard
	if r.Discard {
		discard = func(ctx context.Context, sent []int64) (int, error) {
			n, err := b.discard(ctx, Filter{Numbers: sent}, len(sent))
			d.Discarded += int64(n)
			return n, err
		}
	}
	d.IDs, err = b.resend(ctx, r.Numbers, discard)
	return d, err
}

// mostResent at once: all of them are in memory.
const mostResent = 100

// Cause is a common reason of dead letters: the first lines of their errors differ only in numbers, ids and quoted values.
type Cause struct {
	Cause   string `json:"cause"`
	Example string `json:"example"`
	// Contains is a part of all their errors. As error in a filter it chooses them. Empty if there is no such
	// part.
	Contains string    `json:"contains,omitempty"`
	Letters  int64     `json:"letters"`
	First    time.Time `json:"first_died_at"`
	Last     time.Time `json:"last_died_at"`
}

// Causes are those of the first matching dead letters, up to a limit.
type Causes struct {
	Causes []Cause `json:"causes"`
	// Letters match; more means that not all were read.
	Letters int64 `json:"letters"`
	More    bool  `json:"more"`
}

var (
	varies = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|\d+(?:[.:]\d+)*`)
	quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)
)

// manyValues is from how many different quoted texts on they are taken for values of the jobs. Fewer may be names, as in KeyError: 'to'.
const manyValues = 5

func (c *Console) causesOf(ctx context.Context, b box, f Filter) (Causes, error) {
	const most = 10_000
	all := Causes{Causes: []Cause{}}
	var found []admin.DeadCause
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
	names, values := make([]string, len(found)), map[string]map[string]bool{}
	for i, one := range found {
		line, _, _ := strings.Cut(one.Error, "\n")
		names[i] = varies.ReplaceAllString(line, "…")
		unquoted := quoted.ReplaceAllString(names[i], "…")
		if values[unquoted] == nil {
			values[unquoted] = map[string]bool{}
		}
		values[unquoted][names[i]] = true
	}
	at := map[string]int{}
	for i, one := range found {
		name := names[i]
		if unquoted := quoted.ReplaceAllString(name, "…"); len(values[unquoted]) >= manyValues {
			name = unquoted
		}
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

// mostRead is the number of payload bytes with which a page ends. Less of them is shown, but all must be searched.
const mostRead = 8 << 20

// ends reports whether a page is full: there may be more.
func ends(page []DeadLetter, limit int) bool {
	bytes := int64(0)
	for _, d := range page {
		bytes += d.PayloadBytes
	}
	return len(page) == limit || bytes >= mostRead
}

// box is a source of dead letters.
type box interface {
	page(ctx context.Context, f Filter, after int64, limit int) ([]DeadLetter, error)
	causes(ctx context.Context, f Filter, limit int) ([]admin.DeadCause, error)
	retry(ctx context.Context, f Filter, limit int) (int, error)
	discard(ctx context.Context, f Filter, limit int) (int, error)
	numbers(ctx context.Context, after int64) ([]int64, error)
	// resend sends new ones with the contents of the dead letters of these numbers.
	resend(ctx context.Context, numbers []int64, discard resend.Discard) (ids []string, err error)
	name() (kind, name string)
}

type jobBox struct {
	c     *Console
	queue string
}

func (b jobBox) name() (string, string) { return "queue", b.queue }

func (b jobBox) numbers(ctx context.Context, after int64) ([]int64, error) {
	return b.c.o.Store.DeadNumbers(ctx, b.queue, "", after, window)
}

func (b jobBox) query(f Filter, limit int) admin.DeadJobQuery {
	return admin.DeadJobQuery{Queue: b.queue, IDs: f.Numbers, Kind: f.Kind, Key: f.Key, Group: f.Group, Error: f.Error, DiedBefore: f.DiedBefore, DiedAfter: f.DiedAfter, Limit: limit}
}

func (b jobBox) page(ctx context.Context, f Filter, after int64, limit int) ([]DeadLetter, error) {
	q := b.query(f, limit)
	q.AfterID, q.Bytes = after, mostRead
	found, err := b.c.o.Store.DeadJobs(ctx, q)
	all := make([]DeadLetter, len(found))
	for i, d := range found {
		j := &d.Job
		all[i] = DeadLetter{Number: j.ID, Key: j.Key, Group: j.Group, Attempts: attempts(j.Attempt, d.Failures), CreatedAt: j.CreatedAt, DiedAt: d.At, Error: d.Err(), Failures: orNone(d.Failures), Contents: b.c.contents(j.Headers, j.Payload)}
	}
	return all, err
}

func (b jobBox) causes(ctx context.Context, f Filter, limit int) ([]admin.DeadCause, error) {
	return b.c.o.Store.DeadJobCauses(ctx, b.query(f, limit))
}

func (b jobBox) retry(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.RetryDeadJobs(ctx, b.query(f, limit))
}

func (b jobBox) discard(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.DiscardDeadJobs(ctx, b.query(f, limit))
}

func (b jobBox) resend(ctx context.Context, numbers []int64, discard resend.Discard) (ids []string, err error) {
	return resend.Jobs(ctx, b.c.o.Store, b.queue, numbers, discard)
}

type messageBox struct {
	c                    *Console
	outbox, subscription string
}

func (b messageBox) name() (string, string) { return "subscription", b.outbox + "/" + b.subscription }

func (b messageBox) numbers(ctx context.Context, after int64) ([]int64, error) {
	return b.c.o.Store.DeadNumbers(ctx, b.outbox, b.subscription, after, window)
}

func (b messageBox) query(f Filter, limit int) admin.DeadLetterQuery {
	return admin.DeadLetterQuery{Outbox: b.outbox, Subscription: b.subscription, Seqs: f.Numbers, Key: f.Key, Topic: f.Topic, Error: f.Error, DiedBefore: f.DiedBefore, DiedAfter: f.DiedAfter, Limit: limit}
}

func (b messageBox) page(ctx context.Context, f Filter, after int64, limit int) ([]DeadLetter, error) {
	q := b.query(f, limit)
	q.AfterSeq, q.Bytes = after, mostRead
	found, err := b.c.o.Store.DeadLetters(ctx, q)
	return b.c.letters(found), err
}

func (c *Console) letters(found []admin.DeadLetter) []DeadLetter {
	all := make([]DeadLetter, len(found))
	for i, d := range found {
		m := &d.Message
		all[i] = DeadLetter{Number: m.Seq, ID: m.ID, Key: m.Key, Topic: m.Topic, Attempts: attempts(m.Attempt, d.Failures), Held: d.Held, CreatedAt: m.CreatedAt, DiedAt: d.At, Error: d.Err(), Failures: orNone(d.Failures), Contents: c.contents(m.Headers, m.Payload)}
	}
	return all
}

func (b messageBox) causes(ctx context.Context, f Filter, limit int) ([]admin.DeadCause, error) {
	return b.c.o.Store.DeadLetterCauses(ctx, b.query(f, limit))
}

func (b messageBox) retry(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.RetryDeadLetters(ctx, b.query(f, limit))
}

func (b messageBox) resend(ctx context.Context, numbers []int64, discard resend.Discard) (ids []string, err error) {
	return resend.Messages(ctx, b.c.o.Store, b.outbox, b.subscription, numbers, discard)
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

func orNone(failures []penstock.Failure) []penstock.Failure {
	return append([]penstock.Failure{}, failures...)
}
