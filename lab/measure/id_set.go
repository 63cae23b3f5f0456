package measure

import "math/bits"

const idsPerBlock = 1 << 16

// idSet remembers which ids a worker got, a bit for each.
type idSet struct {
	blocks map[int64]*[idsPerBlock / 64]uint64
	twice  int64
}

func newIDSet() *idSet { return &idSet{blocks: map[int64]*[idsPerBlock / 64]uint64{}} }

// add reports whether the id is new.
func (s *idSet) add(id int64) bool {
	block := s.blocks[id/idsPerBlock]
	if block == nil {
		block = new([idsPerBlock / 64]uint64)
		s.blocks[id/idsPerBlock] = block
	}
	word, bit := &block[id%idsPerBlock/64], uint64(1)<<(id%64)
	if *word&bit != 0 {
		s.twice++
		return false
	}
	*word |= bit
	return true
}

// merge adds what another worker got; what both have was given out twice.
func (s *idSet) merge(o *idSet) {
	s.twice += o.twice
	for at, theirs := range o.blocks {
		ours := s.blocks[at]
		if ours == nil {
			s.blocks[at] = theirs
			continue
		}
		for i, word := range theirs {
			s.twice += int64(bits.OnesCount64(ours[i] & word))
			ours[i] |= word
		}
	}
}
