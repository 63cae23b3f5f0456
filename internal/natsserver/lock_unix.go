//go:build unix

package natsserver

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/penstock/penstock"
)

// dirLock keeps a second server out of the directory: two would overwrite each other's files. The
// system releases it when the process ends, in any way.
type dirLock struct {
	file *os.File
	once sync.Once
}

func lockDir(dir string) (*dirLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, "penstock.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, penstock.WithHint(fmt.Errorf("embedded NATS server: %w", err), "choose a directory that this user may write to")
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, penstock.WithHint(fmt.Errorf("embedded NATS server: the directory %s is in use by another one", dir),
			"stop the other process, choose another directory, or give one of them a listen address and connect to it with a nats:// URL")
	}
	return &dirLock{file: f}, nil
}

func (l *dirLock) release() { l.once.Do(func() { l.file.Close() }) }
