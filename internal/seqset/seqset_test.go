package seqset

import (
	"maps"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/test/testseed"
)

func TestSet(t *testing.T) {
	rnd := testseed.New(t.Name(), 0)
	for round := range 2000 {
		want := map[int64]bool{}
		random := func() (seqs []int64) {
			for range rnd.IntN(12) {
				seqs = append(seqs, int64(rnd.IntN(20)))
			}
			return seqs
		}
		a, b := random(), random()
		for _, seq := range slices.Concat(a, b) {
			want[seq] = true
		}
		one, two := Of(slices.Clone(a)), Of(slices.Clone(b))
		before := slices.Clone(one)
		s := one.Union(two)
		low := int64(rnd.IntN(20))
		rest, less := s.After(low), one.Without(two)
		if !slices.Equal(one, before) || !slices.Equal(s.Seqs(), slices.Sorted(maps.Keys(want))) || s.Len() != int64(len(want)) {
			t.Fatalf("round %d, PENSTOCK_SEED=%d: %v and %v make %v of %v", round, testseed.Seed(), a, b, s, one)
		}
		for i, r := range s {
			if r[0] > r[1] || i > 0 && r[0] <= s[i-1][1]+1 {
				t.Fatalf("round %d, PENSTOCK_SEED=%d: the ranges are %v", round, testseed.Seed(), s)
			}
		}
		for seq := int64(-1); seq < 22; seq++ {
			if less.Has(seq) != (one.Has(seq) && !two.Has(seq)) {
				t.Fatalf("round %d, PENSTOCK_SEED=%d: %v without %v is %v", round, testseed.Seed(), one, two, less)
			}
			if s.Has(seq) != want[seq] || rest.Has(seq) != (want[seq] && seq > low) {
				t.Fatalf("round %d, PENSTOCK_SEED=%d: %d in %v: %t; after %d in %v: %t", round, testseed.Seed(), seq, s, s.Has(seq), low, rest, rest.Has(seq))
			}
		}
	}
}
