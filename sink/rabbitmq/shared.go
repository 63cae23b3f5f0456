package rabbitmq

import (
	"context"
	"sync"
)

// shared is a value that is made when it is first needed and again when it is broken. One
// goroutine makes it for all who ask meanwhile. Each of them waits no longer than its own context.
type shared[T interface{ broken() bool }] struct {
	mu     sync.Mutex
	value  T
	made   bool
	making *making[T] // not nil while a goroutine makes one
}

type making[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// get returns the value. make is called without locks held.
func (s *shared[T]) get(ctx context.Context, make func() (T, error)) (T, error) {
	s.mu.Lock()
	if s.made && !s.value.broken() {
		v := s.value
		s.mu.Unlock()
		return v, nil
	}
	m := s.making
	if m == nil {
		m = s.start(make)
	}
	s.mu.Unlock()
	select {
	case <-m.done:
		return m.value, m.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// last is the value, if there is one, once no call makes another.
func (s *shared[T]) last() (value T, made bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.making != nil {
		m := s.making
		s.mu.Unlock()
		<-m.done
		s.mu.Lock()
	}
	return s.value, s.made
}

// start is called with mu held.
func (s *shared[T]) start(produce func() (T, error)) *making[T] {
	m := &making[T]{done: make(chan struct{})}
	s.making = m
	go func() {
		m.value, m.err = produce()
		s.mu.Lock()
		s.value, s.made, s.making = m.value, m.err == nil, nil
		s.mu.Unlock()
		close(m.done)
	}()
	return m
}
