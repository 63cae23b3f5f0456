//go:build !linux && !darwin

package doctor

import "errors"

func room(string) (free, all int64, err error) {
	return 0, 0, errors.New("not on this operating system")
}
