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

// turns returns which group the next claim is from. With several groups it first searches for those
// with jobs, because waiting for jobs then costs one call, however many groups there are.
//
// It is a deficit round robin: in each round a group gets as many jobs as its weight says, in one claim or in several.
// It keeps nothing for the next round.
type turns struct {
	finder driver.GroupFinder // nil: there is one group
	of     []string           // nil: all
	last   string             // the group that has its turn
	behind string             // the last group of the last search
	left   int                // jobs that it may still get
	unit   int                // jobs for a weight of 1 in this round: 1, or more if all weigh the same
	ready  []string           // those with jobs that have not had their turn, each as often as it weighs

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

// next returns the group whose turn it is and how many of n jobs to claim from it. If no group has jobs, it returns the last one,
// and 0. several: one claim may be for more groups.
func (t *turns) next(ctx context.Context, n int, several bool) (group string, share int, err error) {
	if t.finder == nil {
		t.brought, t.more = 0, false
		return t.last, n, nil
	}
	if t.left > 0 {
		return t.last, min(n, t.left), nil
	}
	if len(t.ready) == 0 {
		start := time.Now()
		if t.ready, err = t.finder.ReadyGroups(ctx, t.of, t.behind, groupsAtOnce); err != nil {
			return "", 0, err
		}
		if len(t.ready) > 0 {
			t.behind = t.ready[len(t.ready)-1]
		}
		groups := len(slices.Compact(slices.Clone(t.ready)))
		t.looked, t.brought, t.more = time.Since(start), 0, groups == groupsAtOnce
		t.unit = 1 // small rounds: jobs claimed ahead would be out of proportion
		if groups == len(t.ready) {
			t.unit = (n + groups - 1) / max(groups, 1)
			if several {
				t.unit = max(n/max(groups, 1), 1)
			}
		}
	}
	if len(t.ready) == 0 {
		return t.last, 0, nil
	}
	t.last = t.ready[0]
	for len(t.ready) > 0 && t.ready[0] == t.last {
		t.left, t.ready = t.left+t.unit, t.ready[1:]
	}
	return t.last, min(n, t.left), nil
}

// several returns the groups for one claim of n jobs: the one that next has returned, and those whose turn comes after it. A group comes as often as it
// gets unit jobs. If n is enough for one group only, it returns nil. Each of
// these groups has had its turn then.
func (t *turns) several(n int) (groups []string) {
	if t.finder == nil || len(t.ready) == 0 || t.left%t.unit != 0 || t.left+t.unit > n {
		return nil
	}
	groups = slices.Repeat([]string{t.last}, t.left/t.unit)
	also := min(n/t.unit-len(groups), len(t.ready))
	groups = append(groups, t.ready[:also]...)
	t.ready, t.left = t.ready[also:], 0
	return groups
}

// took notes how many jobs a claim of a share has brought, and reports whether another claim is
// worthwhile at once. A group without more jobs has had its turn.
func (t *turns) took(jobs, share int) bool {
	t.brought += jobs
	t.more = t.more || jobs == share
	// Where claims pass over jobs that others are claiming, a claim may bring some, and leave more.
	if t.left = max(t.left-jobs, 0); jobs == 0 || jobs < share && t.unit > 1 {
		t.left = 0
	}
	return t.left > 0 || len(t.ready) > 0 || t.more && t.brought > 0
}
