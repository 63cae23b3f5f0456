package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// operator looks after dead letters with the commands that people use, and
// remembers all that it has seen.
type operator struct {
	rig *rig

	mu   sync.Mutex
	seen map[string]map[string]deadLetter // by subscription and what the business calls the message
}

func newOperator(r *rig) *operator {
	o := &operator{rig: r, seen: map[string]map[string]deadLetter{}}
	for _, r := range routes {
		o.seen[r.name] = map[string]deadLetter{}
	}
	return o
}

// look lists the dead letters of a subscription.
func (o *operator) look(ctx context.Context, route string) (seqs []string, err error) {
	out, err := o.rig.penstock(ctx, "dead", "list", outbox, "--subscription", route, "--json")
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range bytes.Lines(out) {
		var d struct {
			Seq     int64             `json:"seq"`
			Headers map[string]string `json:"headers"`
			Error   string            `json:"error"`
			DiedAt  time.Time         `json:"died_at"`
		}
		if err := json.Unmarshal(line, &d); err != nil {
			return nil, fmt.Errorf("penstock dead list --json wrote %q: %w", line, err)
		}
		seqs = append(seqs, fmt.Sprint(d.Seq))
		id := d.Headers["trace"]
		o.seen[route][id] = deadLetter{ID: id, Reason: d.Error, At: d.DiedAt}
	}
	return seqs, nil
}

// retry sends the dead letters of a subscription back to it: those that it has
// looked at, so that it knows of each that it ever was one.
func (o *operator) retry(ctx context.Context, route string) (int, error) {
	seqs, err := o.look(ctx, route)
	if err != nil {
		return 0, err
	}
	for page := range slices.Chunk(seqs, 500) {
		if _, err := o.rig.penstock(ctx, "dead", "retry", outbox, "--subscription", route, "--yes", "--seq", strings.Join(page, ",")); err != nil {
			return 0, err
		}
	}
	return len(seqs), nil
}

// retries is what an operator does in the middle of it: some are delivered now,
// some die again.
func (o *operator) retries() fault {
	return fault{"dead_letters_retried", "operator", blast{}, 2, func(ctx context.Context, _ *rand.Rand, _ func()) (bool, error) {
		retried := 0
		for _, r := range routes {
			n, err := o.retry(ctx, r.name)
			if err != nil { // PostgreSQL is down; people try again later
				o.rig.chronicle.printf("the operator could not retry the dead letters of %s: %v", r.name, err)
			}
			retried += n
		}
		return retried > 0, nil
	}}
}

// dead is every dead letter that was ever seen.
func (o *operator) dead() map[string][]deadLetter {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string][]deadLetter{}
	for route, seen := range o.seen {
		all[route] = slices.Collect(maps.Values(seen))
	}
	return all
}
