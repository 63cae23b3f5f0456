package measure

import (
	"context"
	"slices"
	"sync"
)

// Pairs is a ratio that was measured several times.
type Pairs struct {
	Ratio  float64   `json:"ratio"` // the median
	Ratios []float64 `json:"ratios"`
}

func pairsOf(ratios []float64) Pairs { return Pairs{median(ratios), ratios} }

// inTurns has each side measured once a turn, every other turn the other way round, so that what a machine gains or loses
// in time favours none. It returns the rates of each side.
func inTurns(turns int, sides ...func() (rate float64, err error)) (rates [][]float64, err error) {
	rates = make([][]float64, len(sides))
	for turn := range turns {
		for at := range sides {
			if turn%2 == 1 {
				at = len(sides) - 1 - at
			}
			rate, err := sides[at]()
			if err != nil {
				return rates, err
			}
			rates[at] = append(rates[at], rate)
		}
	}
	return rates, nil
}

// ratios of rates that were measured in the same turns.
func ratios(of, to []float64) (all []float64) {
	for i := range min(len(of), len(to)) {
		all = append(all, over(of[i], to[i]))
	}
	return all
}

// together runs n tasks side by side, until the first that fails: it ends the context of the others.
func together(ctx context.Context, n int, task func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := task(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// median of values, 0 without any.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// over is a/b, 0 where nothing was measured.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
