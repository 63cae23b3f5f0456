// Package testseed is what random tests draw from, and what repeats them:
// PENSTOCK_SEED is the seed of a run, PENSTOCK_ROUNDS makes it longer.
package testseed

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
)

// Seed is the same for all tests of a run. Tests print it as PENSTOCK_SEED=n.
// It panics if the environment's is no number.
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

// Rounds is how many times as long as usual the random tests run.
var Rounds = sync.OnceValue(func() int {
	n, _ := strconv.Atoi(os.Getenv("PENSTOCK_ROUNDS"))
	return max(n, 1)
})

// New returns a generator that the seed repeats; test and part tell several of one
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
