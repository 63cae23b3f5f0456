package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
	for _, r := range append([]route{{name: jobsRoute}}, routes...) {
		o.seen[r.name] = map[string]deadLetter{}
	}
	return o
}

// deadOf has the arguments by which verbs of dead letters know the subscription, and what comes before the number of one.
func deadOf(route string) (of, one []string) {
	if route == jobsRoute {
		return []string{queue}, nil
	}
	return []string{outbox, "--subscription", route}, []string{"--seq"}
}

// look lists the dead letters of a subscription, or of the queue.
func (o *operator) look(ctx context.Context, route string) (seqs []string, err error) {
	of, _ := deadOf(route)
	out, err := o.rig.penstock(ctx, append([]string{"dead", "list", "--json"}, of...)...)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range bytes.Lines(out) {
		var d struct {
			Seq     json.Number       `json:"seq"`
			ID      json.RawMessage   `json:"id"`
			Headers map[string]string `json:"headers"`
			Error   string            `json:"error"`
			DiedAt  time.Time         `json:"died_at"`
		}
		if err := json.Unmarshal(line, &d); err != nil {
			return nil, fmt.Errorf("penstock dead list --json wrote %q: %w", line, err)
		}
		seqs = append(seqs, cmp.Or(string(d.Seq), string(d.ID)))
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
	of, one := deadOf(route)
	for page := range slices.Chunk(seqs, 500) {
		args := append([]string{"dead", "retry", "--yes"}, of...)
		for _, seq := range page {
			args = append(append(args, one...), seq)
		}
		if _, err := o.rig.penstock(ctx, args...); err != nil {
			return 0, err
		}
	}
	return len(seqs), nil
}

// retries are an operator's retries in the middle of it: some are delivered now,
// some die again.
func (o *operator) retries() fault {
	return fault{"dead_letters_retried", "operator", blast{}, 2, func(ctx context.Context, _ *rand.Rand, _ func()) (bool, error) {
		retried := 0
		for _, name := range routeNames("") {
			n, err := o.retry(ctx, name)
			if err != nil { // PostgreSQL is down; people try again later
				o.rig.chronicle.printf("the operator could not retry the dead letters of %s: %v", name, err)
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
