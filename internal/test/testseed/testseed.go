// Package testseed has the numbers for random tests, and repeats them:
// PENSTOCK_SEED is the seed of a run. Without PENSTOCK_ROUNDS random walks, loads and repetitions
// have their short form, which tries the same things fewer times. 1 is the long form, as in
// `make soak`, and more makes that longer.
package testseed

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Seed is the same for all tests of a run. Tests print it as PENSTOCK_SEED=n.
// It panics if the environment's is not a number.
var Seed = sync.OnceValue(func() uint64 {
	if s := os.Getenv("PENSTOCK_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			panic("PENSTOCK_SEED: " + err.Error())
		}
		return n
	}
	return rand.Uint64()
})

var rounds = sync.OnceValue(func() int {
	n, _ := strconv.Atoi(os.Getenv("PENSTOCK_ROUNDS"))
	return max(n, 0)
})

// Rounds is how many times as long as the long form the random tests run.
func Rounds() int { return max(rounds(), 1) }

// Long reports whether this is a run of the long form.
func Long() bool { return rounds() > 0 }

// Soak skips a test that is about time or chance, unless this is a run of the long form.
func Soak(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("about time or chance; make soak runs it")
	}
}

// Steps is the length of a walk that has the given number of steps in the long form.
func Steps(long int) int {
	if Long() {
		return long * rounds()
	}
	return (long + 3) / 4
}

// New returns a generator that the seed repeats; test and part separate several of one
// run apart.
func New(test string, part int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, test, part)
	return rand.New(rand.NewPCG(Seed(), h.Sum64()))
}

// Bytes are n bytes that do not compress.
func Bytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
