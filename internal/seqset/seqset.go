// Package seqset keeps the seqs of messages that are settled ahead of a cursor. They are mostly
// adjacent, so a set is a list of ranges.
package seqset

import (
	"cmp"
	"slices"
)

// Range is the seqs from its first number to its second.
type Range [2]int64

// Set is a list of sorted ranges that neither overlap nor touch. Its nil value is empty. A method
// that returns a Set does not change the one on which it was called.
type Set []Range

// Of returns the set of these seqs, in any order.
func Of(seqs []int64) Set {
	ranges := make(Set, len(seqs))
	for i, seq := range seqs {
		ranges[i] = Range{seq, seq}
	}
	return ranges.joined()
}

// Union has the seqs of both.
func (s Set) Union(t Set) Set {
	switch {
	case len(t) == 0:
		return s
	case len(s) == 0:
		return t
	}
	return slices.Concat(s, t).joined()
}

// Without has the seqs that are not in t.
func (s Set) Without(t Set) (rest Set) {
	for _, r := range s {
		for _, c := range t[t.find(r[0]):] {
			if c[0] > r[1] {
				break
			}
			if c[0] > r[0] {
				rest = append(rest, Range{r[0], c[0] - 1})
			}
			r[0] = c[1] + 1
		}
		if r[0] <= r[1] {
			rest = append(rest, r)
		}
	}
	return rest
}

// joined sorts ranges, and merges those that overlap or touch.
func (s Set) joined() Set {
	slices.SortFunc(s, func(a, b Range) int { return cmp.Compare(a[0], b[0]) })
	n := 0
	for _, r := range s {
		if n > 0 && r[0] <= s[n-1][1]+1 {
			s[n-1][1] = max(s[n-1][1], r[1])
			continue
		}
		s[n] = r
		n++
	}
	return s[:n]
}

// After has the seqs above seq.
func (s Set) After(seq int64) Set {
	i := s.find(seq + 1)
	if i == len(s) {
		return nil
	}
	rest := slices.Clone(s[i:])
	rest[0][0] = max(rest[0][0], seq+1)
	return rest
}

// Has reports whether seq is in the set.
func (s Set) Has(seq int64) bool {
	i := s.find(seq)
	return i < len(s) && s[i][0] <= seq
}

// find returns the first range that does not end below seq.
func (s Set) find(seq int64) int {
	i, _ := slices.BinarySearchFunc(s, seq, func(r Range, seq int64) int { return cmp.Compare(r[1], seq) })
	return i
}

// Len counts the seqs.
func (s Set) Len() (n int64) {
	for _, r := range s {
		n += r[1] - r[0] + 1
	}
	return n
}

// Seqs lists them.
func (s Set) Seqs() []int64 {
	seqs := make([]int64, 0, s.Len())
	for _, r := range s {
		for seq := r[0]; seq <= r[1]; seq++ {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}
