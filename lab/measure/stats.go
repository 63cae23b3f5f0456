package measure

import "slices"

// median of values, 0 without any.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// quantile of sorted values, 0 without any.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// over is a/b, 0 where nothing was measured.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
