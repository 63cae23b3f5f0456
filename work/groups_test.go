package work_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// groupedQueue is a fakeQueue with jobs per group.
type groupedQueue struct {
	*fakeQueue
	ready map[string][]penstock.Job
	lost  []string // groups whose jobs other workers always take first
	order []string // of the groups that were claimed from
}

func newGroupedQueue(groups ...string) *groupedQueue {
	q := &groupedQueue{fakeQueue: newFakeQueue(0), ready: map[string][]penstock.Job{}}
	for _, g := range groups {
		q.ready[g] = nil
	}
	return q
}

func (q *groupedQueue) add(group string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for range n {
		q.ready[group] = append(q.ready[group], penstock.Job{ID: int64(len(q.ready[group]) + 1), Group: group, Payload: []byte(group)})
	}
}

func (q *groupedQueue) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	q.mu.Lock()
	q.waiting = nil
	if !slices.Contains(q.lost, c.Group) {
		q.waiting = q.ready[c.Group]
	}
	q.order = append(q.order, c.Group)
	q.mu.Unlock()
	jobs, err := q.fakeQueue.Claim(ctx, c)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready[c.Group] = q.ready[c.Group][len(jobs):]
	return jobs, err
}

func (q *groupedQueue) ReadyGroups(ctx context.Context, groups []string, behind string, most int) ([]string, error) {
	end, err := q.call(ctx, "look")
	if err != nil {
		return nil, err
	}
	defer end()
	var found []string
	for g, jobs := range q.ready {
		if len(jobs) > 0 && (len(groups) == 0 || slices.Contains(groups, g)) {
			found = append(found, g)
		}
	}
	slices.Sort(found)
	next, is := slices.BinarySearch(found, behind)
	if is {
		next++
	}
	found = slices.Concat(found[next:], found[:next])
	return found[:min(most, len(found))], nil
}

func (q *groupedQueue) called(what string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.calls[what]
}

func manyGroups(n int) []string {
	groups := make([]string, n)
	for i := range groups {
		groups[i] = fmt.Sprintf("g%03d", i)
	}
	return groups
}

// A waiting worker makes one call at a time, however many groups there are.
func TestWorkIdleOverManyGroups(t *testing.T) {
	for name, o := range map[string]work.Options{"all": {AllGroups: true}, "named": {Groups: manyGroups(100)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newGroupedQueue(manyGroups(100)...)
				_, stop := begin(t, q, nothing, o)
				time.Sleep(10 * time.Second)
				before := q.called("look")
				time.Sleep(10 * time.Second)
				looks, claims := q.called("look")-before, q.called("claim")
				if looks < 190 || looks > 210 || claims != 0 {
					t.Errorf("in 10 s it looked %d times and claimed %d times, want one look per 50 ms", looks, claims)
				}
				q.add("g042", 1)
				time.Sleep(time.Second)
				if err := stop(); err != nil || len(q.done) != 1 {
					t.Errorf("done %q, %v, want the job that came", q.done, err)
				}
			})
		})
	}
}

// With one group, Run makes no calls that are needed only for several.
func TestWorkOneGroupDoesNotLook(t *testing.T) {
	for name, o := range map[string]work.Options{"none": {}, "Group": {Group: "a"}, "Groups": {Groups: []string{"a", "a"}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newGroupedQueue()
				q.add("a", 5)
				q.add("", 5)
				_, stop := begin(t, q, nothing, o)
				time.Sleep(time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				want := []string{"a", "a", "a", "a", "a"}
				if name == "none" {
					want = make([]string, 5)
				}
				if q.called("look") != 0 || !slices.Equal(q.done, want) {
					t.Errorf("it looked %d times, and did %q", q.called("look"), q.done)
				}
			})
		})
	}
}

// Groups take turns, whatever the number of their jobs, and a busy worker searches again after each
// round.
func TestWorkGroupsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := manyGroups(40) // more than one search returns
		q := newGroupedQueue(groups...)
		for _, g := range groups {
			q.add(g, 1000)
		}
		q.takes["claim"], q.takes["look"] = time.Millisecond, time.Millisecond
		_, stop := begin(t, q, func(context.Context, penstock.Job) error { time.Sleep(5 * time.Millisecond); return nil }, work.Options{AllGroups: true, Concurrency: 8})
		time.Sleep(2 * time.Second)
		q.add("new", 10)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		turns := map[string]int{}
		for _, g := range q.order {
			turns[g]++
		}
		for _, g := range groups {
			if d := turns[g] - turns["g000"]; d < -1 || d > 1 || turns[g] < 5 {
				t.Errorf("%s had %d turns, and g000 %d: want about as many, and some", g, turns[g], turns["g000"])
			}
		}
		if n := len(q.ready["new"]); n == 10 {
			t.Error("no job of the group that appeared later was claimed")
		}
		if looks, claims := q.called("look"), q.called("claim"); looks > claims/2 {
			t.Errorf("%d looks for %d claims", looks, claims)
		}
	})
}

// Each group gets its share of the free slots, and a slow job does not keep the other groups out.
func TestWorkGroupsShareSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newGroupedQueue()
		q.add("a", 100)
		q.add("b", 100)
		_, stop := begin(t, q, func(context.Context, penstock.Job) error { time.Sleep(time.Hour); return nil }, work.Options{Groups: []string{"b", "a"}, Concurrency: 10})
		time.Sleep(time.Minute)
		q.mu.Lock()
		running := map[string]int{}
		for _, j := range q.leases {
			running[j.Group]++
		}
		q.mu.Unlock()
		if running["a"] != 5 || running["b"] != 5 {
			t.Errorf("run %v, want 5 of each", running)
		}
		time.Sleep(time.Hour)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Groups whose jobs other workers take first, or whose claims fail, delay no other group and cause no busy loop.
func TestWorkGroupsThatBringNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newGroupedQueue()
		q.lost = manyGroups(50)
		for _, g := range q.lost {
			q.add(g, 1)
		}
		q.add("zgood", 1)
		_, stop := begin(t, q, nothing, work.Options{AllGroups: true})
		time.Sleep(time.Second)
		q.mu.Lock()
		if !slices.Equal(q.done, []string{"zgood"}) {
			t.Errorf("done %q, want the one of the good group", q.done)
		}
		q.mu.Unlock()
		before := q.called("claim")
		time.Sleep(10 * time.Second)
		if n := q.called("claim") - before; n > 16*210 {
			t.Errorf("in 10 s it claimed %d times in vain", n)
		}
		q.set("claim", errors.New("no luck"), 0)
		before = q.called("claim")
		time.Sleep(10 * time.Second)
		if n := q.called("claim") - before; n > 20 {
			t.Errorf("in 10 s it claimed %d times from a database that fails", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A slow search is not repeated at once.
func TestWorkLooksThatTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newGroupedQueue()
		q.takes["look"] = 100 * time.Millisecond
		_, stop := begin(t, q, nothing, work.Options{AllGroups: true})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := q.called("look"); n < 18 || n > 22 {
			t.Errorf("it looked %d times in 10 s, want for a fifth of the time", n)
		}
	})
}

func TestWorkGroupsBadOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		o     work.Options
		field string
	}{
		"both":        {work.Options{Group: "a", Groups: []string{"b"}}, "Group"},
		"all and one": {work.Options{Group: "a", AllGroups: true}, "Group"},
		"all, some":   {work.Options{Groups: []string{"a"}, AllGroups: true}, "Group"},
		"NUL":         {work.Options{Groups: []string{"a", "\x00"}}, "Groups[1]"},
		"no finder":   {work.Options{Groups: []string{"a", "b"}}, "Groups"},
		"none at all": {work.Options{AllGroups: true}, "Groups"},
	} {
		var f *penstock.FieldError
		if err := work.Run(t.Context(), newFakeQueue(0), nothing, tc.o); !errors.As(err, &f) || f.Field != tc.field {
			t.Errorf("%s: got %v, want an error about %s", name, err, tc.field)
		}
	}
}

// limitedGroups is a groupedQueue of groups with weights, of which each may run up to most jobs at a time. It claims of several with one call.
type limitedGroups struct {
	*groupedQueue
	weights map[string]int
	most    int
	calls   *[]int // how many jobs each claim has brought
}

func (q limitedGroups) ReadyGroups(ctx context.Context, groups []string, behind string, most int) (found []string, err error) {
	all, err := q.groupedQueue.ReadyGroups(ctx, groups, behind, most)
	for _, g := range all {
		found = append(found, slices.Repeat([]string{g}, max(q.weights[g], 1))...)
	}
	return found, err
}

func (q limitedGroups) AckClaim(ctx context.Context, acks []int64, c driver.Claim) ([]int64, []penstock.Job, error) {
	return q.AckClaimGroups(ctx, acks, []string{c.Group}, c)
}

func (q limitedGroups) AckClaimGroups(ctx context.Context, acks []int64, groups []string, c driver.Claim) (acked []int64, jobs []penstock.Job, err error) {
	if acked, err = q.Ack(ctx, acks...); err != nil {
		return nil, nil, err
	}
	time.Sleep(time.Millisecond)
	each := c.Jobs
	for i, g := range groups {
		c.Group, c.Jobs = g, each
		if i == 0 || g != groups[i-1] {
			room := q.most
			q.mu.Lock()
			for _, j := range q.leases {
				if j.Group == g {
					room--
				}
			}
			q.mu.Unlock()
			for _, next := range groups[i+1:] {
				if next != g {
					break
				}
				c.Jobs += each
			}
			if c.Jobs = min(c.Jobs, room); c.Jobs > 0 {
				more, err := q.Claim(ctx, c)
				if err != nil {
					return nil, nil, err
				}
				jobs = append(jobs, more...)
			}
			acked = append(acked, driver.Full)
		}
	}
	*q.calls = append(*q.calls, len(jobs))
	return acked, jobs, nil
}

// Under limits one claim brings jobs of many groups. Each group still has its turn, as often as it weighs, before another one has a second.
func TestWorkClaimsOfManyGroupsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		groups  []string
		weights map[string]int
		most    int
		workers int
		round   int // jobs after which the groups have had their turns equally often; 0: a group may be full when its turn comes
	}{
		"one each": {groups: manyGroups(40), most: 1, workers: 20},
		"weights":  {groups: []string{"a", "b", "c"}, weights: map[string]int{"a": 1, "b": 2, "c": 4}, most: 100, workers: 5, round: 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const each = 6
				q := limitedGroups{newGroupedQueue(c.groups...), c.weights, c.most, new([]int)}
				for _, g := range c.groups {
					q.add(g, each*max(c.weights[g], 1))
				}
				var claimed []string
				all := 0
				for _, g := range c.groups {
					all += each * max(c.weights[g], 1)
				}
				ran := make(chan string, all)
				_, stop := begin(t, q, func(_ context.Context, j penstock.Job) error {
					ran <- j.Group
					time.Sleep(time.Microsecond)
					return nil
				}, work.Options{AllGroups: true, Concurrency: c.workers, PollMin: time.Millisecond, PollMax: time.Millisecond})
				for range all {
					claimed = append(claimed, <-ran)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				turns := map[string]int{}
				for i, g := range claimed {
					turns[g]++
					least, most := all, 0
					for _, g := range c.groups {
						n := turns[g] / max(c.weights[g], 1)
						least, most = min(least, n), max(most, n)
					}
					if c.round > 0 && (most-least > 1 || i%c.round == c.round-1 && most != least) {
						t.Fatalf("of the first %d jobs these were of each group: %v", i+1, turns)
					}
				}
				if most := slices.Max(*q.calls); most < c.workers/2 || most > c.workers || len(*q.calls) > all/2 {
					t.Errorf("%d claims for %d jobs, of up to %d each, by %d workers", len(*q.calls), all, most, c.workers)
				}
			})
		})
	}
}
