package work

import (
	"context"
	"slices"
	"time"

	"github.com/penstock/penstock/driver"
)

// groupsAtOnce is how many groups one search asks for. So it is also the largest number of claims
// between two searches.
const groupsAtOnce = 16

// turns says which group the next claim is from. With several groups it first searches for those
// with jobs, because waiting for jobs then costs one call, however many groups there are.
type turns struct {
	finder driver.GroupFinder // nil: there is one group
	of     []string           // nil: all
	last   string             // the group that had the last turn
	ready  []string           // those with jobs that have not had their turn

	looked  time.Duration // how long the last search took
	brought int           // jobs since then
	more    bool          // one of the groups may have more, or another group
}

func newTurns(q Queue, o *Options) turns {
	of := slices.Compact(slices.Sorted(slices.Values(o.Groups)))
	if o.AllGroups || len(of) > 1 {
		finder, _ := q.(driver.GroupFinder) // Run has searched
		return turns{finder: finder, of: of}
	}
	return turns{last: append(of, o.Group)[0]}
}

// next returns the group whose turn it is and its share of n jobs. If no group has jobs, it returns the last one,
// and 0.
func (t *turns) next(ctx context.Context, n int) (group string, share int, err error) {
	if t.finder == nil {
		t.brought, t.more = 0, false
		return t.last, n, nil
	}
	if len(t.ready) == 0 {
		start := time.Now()
		if t.ready, err = t.finder.ReadyGroups(ctx, t.of, t.last, groupsAtOnce); err != nil {
			return "", 0, err
		}
		t.looked, t.brought, t.more = time.Since(start), 0, len(t.ready) == groupsAtOnce
	}
	if len(t.ready) == 0 {
		return t.last, 0, nil
	}
	share = (n + len(t.ready) - 1) / len(t.ready)
	t.last, t.ready = t.ready[0], t.ready[1:]
	return t.last, share, nil
}

// took notes how many jobs a claim of a share has brought, and reports whether another claim is
// worthwhile at once.
func (t *turns) took(jobs, share int) bool {
	t.brought += jobs
	t.more = t.more || jobs == share
	return len(t.ready) > 0 || t.more && t.brought > 0
}
