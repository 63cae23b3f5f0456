//go:build !unix

package natsserver

// dirLock does nothing here: the operator must keep a second server out of the directory.
type dirLock struct{}

func lockDir(string) (*dirLock, error) { return &dirLock{}, nil }

func (*dirLock) release() {}
