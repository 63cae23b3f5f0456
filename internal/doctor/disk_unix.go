//go:build linux || darwin

package doctor

import "syscall"

func room(file string) (free, all int64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(file, &fs); err != nil {
		return 0, 0, err
	}
	return int64(fs.Bavail) * int64(fs.Bsize), int64(fs.Blocks) * int64(fs.Bsize), nil
}
