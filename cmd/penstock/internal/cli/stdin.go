package cli

import (
	"context"
	"io"
)

// UntilDone reads r, which may be a terminal or a pipe without a writer, until ctx ends. The
// goroutine that reads ahead ends with r or with the process, because a read of a terminal cannot
// be cancelled.
func UntilDone(ctx context.Context, r io.Reader) io.Reader {
	type chunk struct {
		data []byte
		err  error
	}
	chunks := make(chan chunk)
	go func() {
		for {
			data := make([]byte, 64<<10)
			n, err := r.Read(data)
			select {
			case chunks <- chunk{data[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	var rest chunk
	return readerFunc(func(p []byte) (int, error) {
		for len(rest.data) == 0 && rest.err == nil {
			select {
			case rest = <-chunks:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		n := copy(p, rest.data)
		if rest.data = rest.data[n:]; n > 0 {
			return n, nil
		}
		return 0, rest.err
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
