package due_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/due"
)

var errFails = errors.New("fails")

func released(keys ...string) (all []penstock.Released) {
	for _, key := range keys {
		all = append(all, penstock.Released{Message: penstock.Message{Key: key}})
	}
	return all
}

// A message that always fails stops no key but its own.
func TestKeyThatFails(t *testing.T) {
	waiting := []string{"a", "b", "c"}
	var asked [][]string
	n, err := due.Process(func(passingOver []string) ([]penstock.Released, error) {
		asked = append(asked, slices.Clone(passingOver))
		for i, key := range waiting {
			if slices.Contains(passingOver, key) {
				continue
			}
			if key == "b" {
				return released(key), errFails
			}
			waiting = slices.Delete(waiting, i, i+1)
			return released(key, key), nil
		}
		return nil, nil
	})
	if n != 4 || !errors.Is(err, errFails) {
		t.Errorf("got %d and %v, want 4 and the failure", n, err)
	}
	if len(asked) != 4 || len(asked[0]) != 0 || !slices.Equal(asked[3], []string{"b"}) {
		t.Errorf("asked with %q", asked)
	}
}

// An error of the store ends the loop, and so do too many failing keys.
func TestStoreThatFails(t *testing.T) {
	calls := 0
	if n, err := due.Process(func([]string) ([]penstock.Released, error) { calls++; return nil, errFails }); n != 0 || !errors.Is(err, errFails) || calls != 1 {
		t.Errorf("got %d and %v after %d calls", n, err, calls)
	}
	calls = 0
	_, err := due.Process(func([]string) ([]penstock.Released, error) {
		calls++
		return released(fmt.Sprint(calls)), errFails
	})
	if !errors.Is(err, errFails) || calls != 64 {
		t.Errorf("got %v after %d calls, want 64", err, calls)
	}
}
