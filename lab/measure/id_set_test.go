package measure

import "testing"

func TestIDSet(t *testing.T) {
	one, two := newIDSet(), newIDSet()
	for id := int64(0); id < 3*idsPerBlock; id += 3 {
		one.add(id)
		two.add(id + 1)
	}
	one.merge(two)
	if one.twice != 0 {
		t.Errorf("%d twice, want 0", one.twice)
	}
	three := newIDSet()
	for _, id := range []int64{0, 1, 2, 2, 3*idsPerBlock - 2, 9 * idsPerBlock} {
		three.add(id)
	}
	one.merge(three)
	if one.twice != 4 { // 0, 1 and the last but one by both, 2 by one
		t.Errorf("%d twice, want 4", one.twice)
	}
}
