package adopt

import "context"

// seqs gives numbers to the messages that a Source returns. All numbers of a subscription differ,
// because an operator names a dead letter by its number. A later reader returns higher numbers,
// because parked keys are in their order.
//
// A number is made of the epoch, of a value of the log's sequence, which no other reader has drawn,
// and of a count. A single reader counts on, alone in its epoch. Workers share theirs, so they draw
// another value for every block.
type seqs struct {
	epoch, last int64
	left        int // in the block; of a single reader below zero
}

const (
	seqEpoch = 40 // bits below the epoch
	seqBlock = 12 // bits of a block
)

func (l *lease) seqs() seqs {
	n := seqs{epoch: l.epoch, left: -1}
	n.begin(l.n)
	if l.workers {
		n.left = 1<<seqBlock - 1
	}
	return n
}

// begin goes to the block of a value that was drawn.
func (n *seqs) begin(drawn int64) { n.last = n.epoch<<seqEpoch + drawn<<seqBlock }

func (s *Source) nextSeq(ctx context.Context) (int64, error) {
	n := &s.seqs
	if n.left == 0 {
		var drawn int64
		if err := s.t.pool.QueryRow(ctx, "select nextval($1)", s.t.ownName("_adopt_n")).Scan(&drawn); err != nil {
			return 0, err
		}
		n.begin(drawn)
		n.left = 1<<seqBlock - 1
	}
	if n.left > 0 {
		n.left--
	}
	n.last++
	return n.last, nil
}
