// Package backoff computes how long a job waits after a failed attempt. store/postgres has the
// same curve in SQL (functions/settle_leases.sql).
package backoff

import (
	"math/rand/v2"
	"time"
)

// Most is the longest pause, plus or minus a fifth.
const Most = time.Hour

// After returns the pause after the n-th attempt, n from 1: two seconds, twice as long after each,
// at most an hour. It is up to a fifth longer or shorter, to keep jobs that failed together from
// coming back together.
func After(attempt int) time.Duration {
	wait := min(time.Second<<min(max(attempt, 1), 12), Most)
	return wait - wait/5 + rand.N(2*wait/5)
}
