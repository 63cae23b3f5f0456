// Package due is the loop over due messages, for every store.
package due

import (
	"context"
	"errors"

	"github.com/penstock/penstock"
)

// maxFailed bounds how many keys one call skips: if that many keys fail, the messages are not the
// cause.
const maxFailed = 64

// Process calls next until it returns no messages. next returns those that it has processed, of one key that is not in passingOver. An error
// with messages is about them, and their key is skipped from then on. An error without messages is about the store, and ends the loop.
//
// It returns how many messages were processed, and all errors, joined.
func Process(next func(passingOver []string) ([]penstock.Released, error)) (n int, err error) {
	failed := []string{}
	for {
		released, one := next(failed)
		err = errors.Join(err, one)
		switch {
		case len(released) == 0:
			return n, err
		case one == nil:
			n += len(released)
		case len(failed) == maxFailed-1:
			return n, err
		default:
			failed = append(failed, released[0].Key)
		}
	}
}

// Each has h process the messages that receive returns, within tx.
func Each[T any](ctx context.Context, tx T, receive func(T) ([]penstock.Released, error), h func(context.Context, T, penstock.Released) error) ([]penstock.Released, error) {
	released, err := receive(tx)
	for i := 0; i < len(released) && err == nil; i++ {
		err = h(ctx, tx, released[i])
	}
	return released, err
}
