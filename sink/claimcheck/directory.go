package claimcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock"
)

// Directory is a Store in a directory, which relay and consumers share. The program that reads may have it under another
// path.
type Directory string

var _ Store = Directory("")

// Put writes a file, and renames it once it is on disk.
func (d Directory) Put(ctx context.Context, o Object) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", penstock.Unavailable(err)
	}
	path := filepath.Join(string(d), o.Name)
	f, err := os.CreateTemp(string(d), ".new-*")
	if err != nil {
		return "", d.explain(err)
	}
	_, err = f.Write(o.Payload)
	err = errors.Join(err, f.Chmod(0o640), f.Sync(), f.Close())
	if err == nil {
		err = errors.Join(os.Rename(f.Name(), path), syncDirectory(string(d)))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", d.explain(err)
	}
	if path = filepath.ToSlash(path); !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	return (&url.URL{Scheme: "file", Path: path}).String(), nil
}

// syncDirectory makes a rename durable.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, fs.ErrPermission) {
		err = nil // not every system can
	}
	return errors.Join(err, d.Close())
}

func (d Directory) explain(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		err = penstock.WithHint(err, "create the directory %s, and let the relay's user write to it", string(d))
	}
	return penstock.Unavailable(err)
}

// Get opens a file.
func (d Directory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	return os.OpenInRoot(string(d), name)
}

// Reach looks whether the directory is there.
func (d Directory) Reach(context.Context) (string, error) {
	info, err := os.Stat(string(d))
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", string(d))
	}
	if err != nil {
		return "", d.explain(err)
	}
	return "", nil
}

// Close does nothing.
func (Directory) Close() {}
