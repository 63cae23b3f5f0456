package portable

import "github.com/penstock/penstock/internal/pg"

// BoundResults has a store of PostgreSQL's ask for no more bytes at a time than it would of YugabyteDB.
func BoundResults(s *Store) {
	s.speaks.Store(dialect{engine: pg.PostgreSQL, words: map[string]string{"before": yugabyte.words["before"]}, resultBytes: yugabyte.resultBytes, plan: postgresPlan}.filled())
}

// Turn has claims of the store lock this turn of a queue.
func (s *Store) Turn(n int) { s.turn = func() int { return n } }
