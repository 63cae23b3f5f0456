package webhook

import (
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/penstock/penstock"
)

// maxHolds bounds the URLs that are remembered. If more ask for a pause, each of their messages asks again.
const maxHolds = 4096

// holds are the URLs that answered 429 with Retry-After. No request for them is made until then.
type holds struct {
	mu    sync.Mutex
	until map[url.URL]time.Time
}

// add keeps the later of two times.
func (h *holds) add(u *url.URL, until, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil {
		h.until = map[url.URL]time.Time{}
	}
	if len(h.until) >= maxHolds {
		for u, until := range h.until {
			if !until.After(now) {
				delete(h.until, u)
			}
		}
	}
	if _, known := h.until[*u]; until.After(h.until[*u]) && (known || len(h.until) < maxHolds) {
		h.until[*u] = until
	}
}

// of returns until when a URL is held; zero if it is not.
func (h *holds) of(u *url.URL, now time.Time) (until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.until) == 0 {
		return until
	}
	if until = h.until[*u]; until.After(now) {
		return until
	}
	delete(h.until, *u)
	return time.Time{}
}

// held is the error of a message for a URL that asked for a pause. If all messages go to that URL, the sink takes none.
func (s *Sink) held(err error, until, now time.Time) error {
	err = penstock.WithHint(fmt.Errorf("%w: it takes nothing until %s", err, until.UTC().Format(time.RFC3339)), "to send less, give the subscription's relay a rate")
	if s.endpoint.fixed != nil {
		return penstock.Unavailable(penstock.RetryAfter(err, until.Sub(now)))
	}
	return penstock.RetryAfter(penstock.Unavailable(err), until.Sub(now))
}
