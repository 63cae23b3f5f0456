//go:build !unix

package natsserver

// dirLock does nothing here: keeping a second server out of the directory is
// the operator's care.
type dirLock struct{}

func lockDir(string) (*dirLock, error) { return &dirLock{}, nil }

func (*dirLock) release() {}
