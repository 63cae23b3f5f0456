package tables

import "github.com/penstock/penstock/internal/seqset"

// Cursor is how far a subscription is settled in a dialect with Options.Position, where messages commit in the order of their numbers. All up to the
// position are, and those ahead of it that a slow sink has taken before others.
type Cursor struct {
	Position int64
	Ahead    seqset.Set
}

// Begin has the reader continue where the one before has stopped.
func (r *Reader) Begin(c Cursor) { r.upTo, r.ahead = c.Position, c.Ahead }

// Known returns the number of the last Settle, and the seq of the last new message in flight, 0 without one. A database that lacks
// that Settle is an older copy, and so is one that lacks the message though no other Settle came.
func (r *Reader) Known() (settled, read int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.open); n > 0 {
		read = r.open[n-1][1]
	}
	return r.settled, read
}

// ReadOn reads new messages, some rows at a time, until there is one that no reader before has settled. read asks for the rows behind a number.
func (r *Reader) ReadOn(p *Page, read func(after int64, row func(Scan) error) error) error {
	p.upTo = r.upTo
	for {
		n := 0
		if err := read(p.upTo, func(scan Scan) error {
			n++
			return p.collect(&r.Box, scan, r.ahead.Has, func(row *Row) { p.upTo = row.Seq })
		}); err != nil {
			return err
		}
		p.full = p.full || n == p.Most()
		if len(p.msgs) > 0 || n < p.Most() {
			return nil
		}
		p.full = false
	}
}

// readOn notes that a page of new messages was read.
func (r *Reader) readOn(p *Page) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.upTo = p.upTo
	if r.ID == 0 {
		return // nothing of an ephemeral reader is settled
	}
	seqs := make([]int64, len(p.msgs))
	for i := range p.msgs {
		seqs[i] = p.msgs[i].Seq
	}
	r.open = r.open.Union(seqset.Of(seqs))
}

// Cursor is where the subscription is once parts are settled.
func (r *Reader) Cursor(parts []*Part) Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Cursor{r.upTo, r.ahead.After(r.upTo)}
	if open := r.open.Without(fresh(parts)); len(open) > 0 {
		c.Position = open[0][0] - 1
		c.Ahead = seqset.Set{{open[0][0], r.upTo}}.Without(open).Union(c.Ahead)
	} else if len(c.Ahead) > 0 && c.Ahead[0][0] == r.upTo+1 {
		c.Position, c.Ahead = c.Ahead[0][1], c.Ahead[1:] // all that follows is settled
	}
	return c
}

// fresh are the parts that were new.
func fresh(parts []*Part) seqset.Set {
	seqs := make([]int64, 0, len(parts))
	for _, p := range parts {
		if p.From == FromLog {
			seqs = append(seqs, p.Msg.Seq)
		}
	}
	return seqset.Of(seqs)
}
