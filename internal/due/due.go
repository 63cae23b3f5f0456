// Package due is the loop over due messages, for every store.
package due

import "errors"

// maxFailed bounds how many keys one call skips: if that many keys fail, the messages are not the
// cause.
const maxFailed = 64

// Process calls next until it processes nothing. next returns n, the number of processed messages
// of one key that is not in passingOver. It sets key once it has a message, so an error with a key
// is about the message, and the key is skipped from then on. An error without a key is about the
// store, and ends the loop.
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
