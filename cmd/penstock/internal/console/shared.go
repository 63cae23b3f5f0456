package console

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// A figure is read once for all clients that ask for it. It is read at most once a second, and so rarely that all
// readings together take at most a sixtieth of the time.
const (
	readEvery    = time.Second
	shareOfTime  = 60
	seldomAtMost = 15 * time.Second // between two readings, unless one takes half a second
	staleFor     = 5 * time.Second  // a client that asks within this time gets the existing value, while it is read again
	askedLately  = 20 * time.Second // a request of this length counts as one of those that share the time
	mostRequests = 64               // whose answers are kept
)

// pause is how long a figure is not read again, from the time that the reading took and the number
// of figures.
func pause(took time.Duration, many int) time.Duration {
	return max(readEvery, min(shareOfTime*took*time.Duration(max(many, 1)), max(seldomAtMost, shareOfTime/2*took)))
}

// shared is a value that is read once for all clients.
type shared[T any] struct {
	mu         sync.Mutex
	have       T
	err        error
	at         time.Time // when it was read last
	next       time.Time // when it may be read again
	reading    chan struct{}
	generation int // how often it was invalidated
}

// get returns a recent value, or waits until it is read. read does not get the context of one client, because the others also need it.
func (s *shared[T]) get(ctx context.Context, read func() (T, error), pause func(took time.Duration) time.Duration) (T, error) {
	for {
		s.mu.Lock()
		now := time.Now()
		if now.Before(s.next) {
			defer s.mu.Unlock()
			return s.have, s.err
		}
		s.begin(read, pause)
		if s.err == nil && now.Before(s.next.Add(staleFor)) {
			defer s.mu.Unlock()
			return s.have, nil
		}
		reading := s.reading
		s.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
}

// begin reads it in the background, unless it is being read. The caller holds mu.
func (s *shared[T]) begin(read func() (T, error), pause func(took time.Duration) time.Duration) {
	if s.reading != nil {
		return
	}
	reading := make(chan struct{})
	s.reading = reading
	generation := s.generation
	go func() {
		began := time.Now()
		have, err := read()
		s.mu.Lock()
		defer s.mu.Unlock()
		defer close(reading)
		s.reading = nil
		if s.generation != generation {
			return // it may not show actions since then
		}
		s.have, s.err, s.at = have, err, time.Now()
		s.next = s.at.Add(pause(s.at.Sub(began)))
		if err != nil {
			s.next = s.at.Add(readEvery)
		}
	}()
}

// await waits until it is not older than age, but no longer than wait.
func (s *shared[T]) await(ctx context.Context, age, wait time.Duration, read func() (T, error), pause func(took time.Duration) time.Duration) {
	s.mu.Lock()
	now := time.Now()
	if !now.Before(s.next) {
		s.begin(read, pause)
	}
	reading, young := s.reading, !s.at.IsZero() && now.Sub(s.at) < age && !s.next.IsZero()
	s.mu.Unlock()
	if reading == nil || young {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-reading:
	case <-ctx.Done():
	}
}

// again makes the next request read it again, unless it is being read or was just read.
func (s *shared[T]) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading == nil && time.Since(s.at) > readEvery {
		s.next = time.Time{}
	}
}

// last returns the last value and its time, which is zero if there is none. It starts a new reading when it is time, and
// waits for nothing.
func (s *shared[T]) last(read func() (T, error), pause func(took time.Duration) time.Duration) (have T, at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(s.next) {
		s.begin(read, pause)
	}
	return s.have, s.at, s.err
}

// forget makes the next request read it again, because something was done.
func (s *shared[T]) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = time.Time{}
	s.generation++
}

// answer is the data of a request.
type answer struct {
	title string // of a page
	data  any
}

// answers are those to requests that other clients also make.
type answers struct {
	mu sync.Mutex
	of map[string]*asked
}

type asked struct {
	shared[answer]
	lately time.Time
}

// to is the place of the answer to a request.
func (a *answers) to(r *http.Request) *asked {
	v := r.URL.Query()
	v.Del("did")
	key := r.Pattern + " " + r.URL.EscapedPath() + "?" + v.Encode()
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string]*asked{}
	}
	one := a.of[key]
	if one == nil {
		var oldest string
		for of, other := range a.of {
			if now.Sub(other.lately) > askedLately {
				delete(a.of, of)
			} else if oldest == "" || other.lately.Before(a.of[oldest].lately) {
				oldest = of
			}
		}
		if len(a.of) >= mostRequests {
			delete(a.of, oldest)
		}
		one = &asked{}
		a.of[key] = one
	}
	one.lately = now
	return one
}

// many is how many answers, with the status, share the time.
func (a *answers) many() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.of) + 1
}

// forget makes everything be read again.
func (a *answers) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.of {
		one.forget()
	}
}

// shown is the data of a request: read for it and for others with the same request, in bounded time, and not too many at
// once.
func (c *Console) shown(r *http.Request, read func(ctx context.Context, r *call) (answer, error)) (answer, error) {
	request := r.Clone(context.Background()) // it may be read after this request has its answer
	return c.answers.to(r).get(r.Context(), func() (answer, error) {
		ctx, cancel := context.WithTimeout(request.Context(), patience)
		defer cancel()
		select {
		case c.reading <- struct{}{}:
			defer func() { <-c.reading }()
			return read(ctx, &call{Request: request})
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}, func(took time.Duration) time.Duration { return pause(took, c.answers.many()) })
}
