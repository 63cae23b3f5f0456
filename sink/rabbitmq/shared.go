package rabbitmq

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"github.com/penstock/penstock"
)

// shared is a value that is made when it is first needed and again when it is broken. One
// goroutine makes it for all who ask meanwhile. Each of them waits no longer than its own context.
type shared[T interface{ broken() bool }] struct {
	value  atomic.Pointer[T] // nil if the last attempt has failed
	making singleflight.Group
}

// get returns the value.
func (s *shared[T]) get(ctx context.Context, produce func() (T, error)) (v T, err error) {
	if v, ok := s.working(); ok {
		return v, nil
	}
	made := s.making.DoChan("", func() (any, error) {
		if v, ok := s.working(); ok { // made meanwhile
			return v, nil
		}
		v, err := produce()
		if err != nil {
			s.value.Store(nil)
			return nil, err
		}
		s.value.Store(&v)
		return v, nil
	})
	select {
	case m := <-made:
		v, _ = m.Val.(T)
		return v, m.Err
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

func (s *shared[T]) working() (v T, ok bool) {
	if last := s.value.Load(); last != nil {
		v = *last
		return v, !v.broken()
	}
	return v, false
}

// last is the value, if there is one, once no call makes another. Who asks meanwhile gets penstock.ErrClosed.
func (s *shared[T]) last() (v T, made bool) {
	_, _, _ = s.making.Do("", func() (any, error) { return nil, penstock.ErrClosed })
	if last := s.value.Load(); last != nil {
		return *last, true
	}
	return v, false
}
