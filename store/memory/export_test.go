package memory

import "time"

// Backdate moves the next time of a schedule into the past.
func (s *Store) Backdate(queue, schedule string, by time.Duration) {
	s.db.Lock()
	defer s.db.Unlock()
	s.db.queues[queue].schedules[schedule].Next = s.db.now().Add(-by)
}
