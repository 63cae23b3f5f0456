package kafka

// Busy is how many producers are lent.
func (s *Sink) Busy() int { return len(s.pool.places) }
