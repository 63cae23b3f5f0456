package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// ParseSize takes 4096, 64KiB, 512MiB, 1GiB, 2TiB.
func ParseSize(v string) (int64, error) {
	number, unit := v, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(v, suffix); ok {
			number, unit = strings.TrimSpace(n), 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, errors.New("use a whole number of bytes, KiB, MiB, GiB or TiB, such as 1GiB")
	}
	return n * unit, nil
}
