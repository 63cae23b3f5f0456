package relay

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// grown is the full delay after the nth failure in a row (n from 1). It doubles from least to
// most.
func grown(n int, least, most time.Duration) time.Duration {
	if n < 32 && least<<(n-1) > 0 { // no overflow
		return min(least<<(n-1), most)
	}
	return most
}

// spread takes up to half off a delay, to keep many retries from coming back together.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// apart makes a pause up to an eighth longer or shorter, to keep relays that started together from polling
// together.
func apart(d time.Duration) time.Duration { return d - d/8 + rand.N(d/4+1) }

// backoff counts failures in a row.
type backoff struct {
	least, most time.Duration
	failures    int
}

func (b *backoff) next() time.Duration {
	b.failures++
	return spread(grown(b.failures, b.least, b.most))
}

func (b *backoff) reset() { b.failures = 0 }

// sleep waits for d and reports whether neither ctx nor stop ended it.
func sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
	case <-ctx.Done():
	}
	return false
}

// throttle lets one log line through per interval, by default every ten seconds, and counts the
// others.
type throttle struct {
	log   *slog.Logger
	every time.Duration

	mu      sync.Mutex
	next    time.Time
	skipped int
}

func (t *throttle) Log(level slog.Level, msg string, args ...any) { t.logMany(1, level, msg, args...) }

// logMany is Log for n events, of which this line describes the first.
func (t *throttle) logMany(n int, level slog.Level, msg string, args ...any) {
	t.mu.Lock()
	now := time.Now()
	if now.Before(t.next) {
		t.skipped += n
		t.mu.Unlock()
		return
	}
	skipped := t.skipped + n - 1
	t.next, t.skipped = now.Add(cmp.Or(t.every, 10*time.Second)), 0
	t.mu.Unlock()
	if skipped > 0 {
		args = append(args, "similar_not_logged", skipped)
	}
	t.log.Log(context.Background(), level, msg, args...)
}
