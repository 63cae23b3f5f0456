package plot

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// steps labels some six round numbers.
type steps struct{}

func (steps) Ticks(least, most float64) (ticks []plot.Tick) {
	rough := (most - least) / 6
	step := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, by := range []float64{5, 2} {
		if step*by <= rough*1.3 {
			step *= by
			break
		}
	}
	for i := math.Ceil(least / step); i*step <= most; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: thousands(i * step)})
	}
	return ticks
}

// powers labels the powers of ten and marks the steps between; within less than
// two decades it labels 1, 2 and 5 of each.
type powers struct{}

func (powers) Ticks(least, most float64) (ticks []plot.Tick) {
	narrow := most/least < 100
	for power := math.Floor(math.Log10(least)); power <= math.Ceil(math.Log10(most)); power++ {
		for step := 1.0; step < 10; step++ {
			value := step * math.Pow(10, power)
			if value < least*0.999 || value > most*1.001 {
				continue
			}
			tick := plot.Tick{Value: value}
			if step == 1 || narrow && (step == 2 || step == 5) {
				tick.Label = thousands(value)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// thousands writes 25,000 for 25000, to six digits behind the point.
func thousands(v float64) string {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(math.Abs(v), 'f', 6, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		whole += "." + fraction
	}
	if v < 0 {
		return "-" + whole
	}
	return whole
}
