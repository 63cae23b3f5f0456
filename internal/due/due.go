// Package due is the loop over messages that are due, whichever store holds them.
package due

import "errors"

// maxFailed bounds what one call passes over: with so many keys that fail, it is not the
// messages.
const maxFailed = 64

// Process calls next until it processes nothing: n messages of one key, but for the keys
// in passingOver. key is set once next has a message, so an error with a key is the
// message's; the key is passed over from then on. An error without one, the store's, ends the loop.
//
// It returns how many messages were processed, and all errors, joined.
func Process(next func(passingOver []string) (n int, key *string, err error)) (int, error) {
	total, failed := 0, []string{}
	var errs []error
	for {
		n, key, err := next(failed)
		total += n
		errs = append(errs, err)
		if err != nil && key != nil && len(failed) < maxFailed-1 {
			failed = append(failed, *key)
			continue
		}
		if n == 0 || err != nil {
			return total, errors.Join(errs...)
		}
	}
}
