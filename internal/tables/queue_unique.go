package tables

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// Twins finds the jobs of a queue that have a unique key and have not ended. A unique job has its unique key as key, so the index by key finds it.
//
// Who enqueues one, or retries one that is dead, locks a row that stands for the key until its transaction ends, and looks then. No other job of the
// key can come meanwhile. Those that it finds may begin and end.
type Twins struct {
	Tx   Runner // the transaction
	Now  Runner // reads what has committed; nil where Tx does
	Args Args   // queue and jobs, as QueueRow.Args has them

	Stale error // Tx cannot be used for unique keys
}

// twin is a job that has not ended.
type twin struct {
	id, seq   int64 // as callers know it, and that of its row
	createdAt time.Time
	holds     string // its barrier, which it keeps
	leased    bool
	late      bool // its deadline has passed, so that it has no other attempt, and hides no job
	pending   *int // of one that this call writes: its place among the jobs that are enqueued
}

// Turns of a queue's unique keys, behind those of its claims: keys that share one wait for each other.
const (
	firstUniqueTurn = 64
	uniqueTurns     = 32_000
)

func (t Twins) now() Runner {
	if t.Now != nil {
		return t.Now
	}
	return t.Tx
}

// lock the keys until the transaction ends, in one order.
func (t Twins) lock(ctx context.Context, keys []string) error {
	some := map[int64]bool{}
	for _, key := range keys {
		h := fnv.New32a()
		_, _ = h.Write([]byte(key))
		some[firstUniqueTurn+int64(h.Sum32()%uniqueTurns)] = true
	}
	return t.Tx.Run(ctx, new(Batch).Do("hold_unique", t.Args.With(Args{"turns": slices.Sorted(maps.Keys(some))})))
}

// find returns the last one of each key that does not run, or else the one that runs.
func (t Twins) find(ctx context.Context, keys []string) (map[string]*twin, error) {
	type found struct {
		twin
		key string
	}
	look := func(on Runner) (all map[int64]found, err error) {
		all = map[int64]found{}
		return all, on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
			var f found
			var headers []byte
			if err := scan(&f.id, &f.seq, &f.key, &f.createdAt, &headers, &f.leased); err != nil {
				return err
			}
			if h := Headers(headers); h[penstock.HeaderUniqueKey] == f.key {
				f.holds = h[penstock.HeaderHolds]
				f.late = isLate((penstock.Job{Headers: h}).Deadline(), time.Now())
				all[f.seq] = f
			}
			return nil
		}, "twins", t.Args.With(Args{"keys": keys})))
	}
	all, err := look(t.now())
	if err != nil {
		return nil, err
	}
	if t.Now != nil { // the transaction may have an old snapshot. The jobs that only it sees are its own, or have ended
		own, err := look(t.Tx)
		if err != nil {
			return nil, err
		}
		for seq := range all {
			delete(own, seq)
		}
		there, err := t.hold(ctx, keys, slices.Sorted(maps.Keys(own)))
		if err != nil {
			return nil, err
		}
		for _, seq := range there {
			all[seq] = own[seq]
		}
	}
	last := map[string]*twin{}
	for _, f := range all {
		if l := last[f.key]; l == nil || l.leased && !f.leased || l.leased == f.leased && l.id < f.id {
			last[f.key] = &f.twin
		}
	}
	return last, nil
}

// hold locks jobs, so that no claim takes them, and returns those that have not ended.
func (t Twins) hold(ctx context.Context, keys []string, seqs []int64) (there []int64, err error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	return there, t.Tx.Run(ctx, new(Batch).Rows(All(&there), "hold_twins", t.Args.With(Args{"keys": keys, "seqs": seqs})))
}

// Unite decides which of the jobs that are enqueued are duplicates by their unique keys, but for those that made says are duplicates already. It
// replaces jobs that wait. It returns the jobs with what must be written of each, and a function that completes made after that.
func (t Twins) Unite(ctx context.Context, jobs []penstock.NewJob, made []penstock.Enqueued) (written []penstock.NewJob, complete func(), err error) {
	written, complete = jobs, func() {}
	var keys, replacing []string
	for i := range jobs {
		key := uniqueKey(&jobs[i])
		if key == "" || made[i].Deduplicated {
			continue
		}
		if keys == nil {
			written = slices.Clone(jobs)
		}
		j := &written[i]
		j.ReadHeaders()
		j.Key = key
		keys = append(keys, key)
		if replaces(j) {
			replacing = append(replacing, key)
		}
	}
	if keys == nil {
		return written, complete, nil
	}
	if t.Stale != nil {
		return nil, nil, t.Stale
	}
	if err := t.lock(ctx, keys); err != nil {
		return nil, nil, err
	}
	twins, err := t.findToReplace(ctx, keys, replacing)
	if err != nil {
		return nil, nil, err
	}
	same := map[int]int{} // places of duplicates, and of the jobs that come first
	b, now := &Batch{}, time.Now()
	for i := range written {
		j := &written[i]
		if uniqueKey(j) == "" || made[i].Deduplicated {
			continue
		}
		one := twins[j.Key]
		barriers := one != nil && one.late && (j.Holds != 0 || waits(j)) // which a job that takes its place would not have
		if one == nil || barriers || one.leased && (replaces(j) || one.late) {
			if barriers && !one.leased { // a claim ends the late one now
				b.Do("retry_now", t.Args.With(Args{"seqs": []int64{one.id}}))
			}
			twins[j.Key] = &twin{pending: &i, createdAt: now, late: isLate(j.Deadline, now)}
			continue
		}
		made[i] = penstock.Enqueued{ID: one.id, Deduplicated: true}
		if one.pending != nil {
			same[i] = *one.pending
		}
		if !replaces(j) && !one.late {
			continue
		}
		one.late = isLate(j.Deadline, now)
		due := j.NotBefore
		if latest := one.createdAt.Add(j.DebounceMax); j.DebounceMax > 0 && due.After(latest) {
			due = latest
		}
		if one.pending != nil {
			written[*one.pending] = inPlaceOf(&written[*one.pending], *j, due)
			continue
		}
		headers := j.AllHeaders()
		if one.holds != "" {
			headers = maps.Clone(headers)
			headers[penstock.HeaderHolds] = one.holds
		}
		args := t.Args.With(Args{"key": j.Key, "job": one.seq, "headers": HeadersText(headers), "payload": NotNil(j.Payload), "due": due.UTC()})
		if b.Do("replace_job", args).Do("replace_try", args); due.After(now) {
			b.Do("replace_later", args)
		}
	}
	if err := t.Tx.Run(ctx, b); err != nil {
		return nil, nil, err
	}
	return written, func() {
		for i, first := range same {
			made[i].ID = made[first].ID
		}
	}, nil
}

// findToReplace is find. It locks the jobs that wait and are late, or of a key in replacing, so that none begins before it is replaced.
func (t Twins) findToReplace(ctx context.Context, keys, replacing []string) (map[string]*twin, error) {
	for {
		twins, err := t.find(ctx, keys)
		if err != nil {
			return nil, err
		}
		waiting := map[int64]*twin{}
		for key, one := range twins {
			if !one.leased && (one.late || slices.Contains(replacing, key)) {
				waiting[one.seq] = one
			}
		}
		if replacing == nil && len(waiting) == 0 {
			return twins, nil
		}
		seqs := slices.Sorted(maps.Keys(waiting))
		there, err := t.hold(ctx, keys, seqs)
		if err != nil || len(seqs) == 0 {
			return twins, err
		}
		var began []int64
		if err := t.now().Run(ctx, new(Batch).Rows(All(&began), "began", t.Args.With(Args{"seqs": seqs}))); err != nil {
			return nil, err
		}
		for _, seq := range began {
			waiting[seq].leased = true
		}
		if len(there) == len(seqs) {
			return twins, nil
		}
	}
}

// inPlaceOf is a job that replaces another one before that is written.
func inPlaceOf(was *penstock.NewJob, j penstock.NewJob, due time.Time) penstock.NewJob {
	j.Group, j.Priority, j.DedupKey = was.Group, was.Priority, was.DedupKey
	j.Holds, j.WaitsFor, j.OnDead = was.Holds, was.WaitsFor, was.OnDead
	if j.NotBefore = due; waits(was) {
		j.NotBefore = was.NotBefore
	}
	return j
}

// waits: the job waits for barriers. A dialect that has them has given it a time that never comes.
func waits(j *penstock.NewJob) bool { return j.NotBefore.Year() > 9999 }

func uniqueKey(j *penstock.NewJob) string {
	return cmp.Or(j.UniqueKey, j.Headers[penstock.HeaderUniqueKey])
}

func isLate(deadline, now time.Time) bool { return !deadline.IsZero() && !deadline.After(now) }

func replaces(j *penstock.NewJob) bool {
	return j.OnConflict == penstock.OnConflictReplace || j.OnConflict == penstock.OnConflictDebounce
}

// isUnique: a job that was read has a unique key.
func isUnique(j *penstock.Job) bool {
	return j.Key != "" && j.Headers[penstock.HeaderUniqueKey] == j.Key
}

// mayRevive leaves out dead letters that must not run again, because a job with their unique key has not ended, or is among them and came first. It is
// an error if none is left.
func (t Twins) mayRevive(ctx context.Context, dead []admin.DeadJob) (may []admin.DeadJob, err error) {
	var keys []string
	for i := range dead {
		if j := &dead[i].Job; isUnique(j) {
			keys = append(keys, j.Key)
		}
	}
	twins := map[string]*twin{}
	if keys != nil {
		if err := t.lock(ctx, keys); err != nil {
			return nil, err
		}
		if twins, err = t.find(ctx, keys); err != nil {
			return nil, err
		}
	}
	var refused error
	for i := range dead {
		j := &dead[i].Job
		unique := isUnique(j)
		if one := twins[j.Key]; unique && one != nil {
			refused = cmp.Or(refused, penstock.WithHint(fmt.Errorf("the dead letter %d cannot run again: job %d has the same unique_key, %q, and has not ended", j.ID, one.id, j.Key),
				"discard the dead letter, or retry it once that job has ended"))
			continue
		}
		if unique {
			twins[j.Key] = &twin{id: j.ID}
		}
		may = append(may, dead[i])
	}
	if len(may) > 0 {
		refused = nil
	}
	return may, refused
}
