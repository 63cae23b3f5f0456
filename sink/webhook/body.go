package webhook

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
)

// payload lends a message's bytes to the requests that carry it. The HTTP library may still be
// writing a body when the answer has come, or after it gave up the request. The bytes belong to
// the relay again once Send has returned, so release ends the reading.
//
// Requests of a small message get a copy instead. The library writes headers and body together
// only if the body is one of certain readers in memory, which cannot be stopped. Otherwise every
// request takes two packets and two system calls.
type payload struct {
	mu       sync.Mutex
	data     []byte
	copied   bool
	released bool
	replays  int
	// drop closes the connections in the pool.
	drop func()
}

// copyLimit is the largest message that is copied.
const copyLimit = 16 << 10

func lend(data []byte, drop func()) *payload {
	p := &payload{data: data, drop: drop}
	if p.copied = len(data) <= copyLimit; p.copied {
		p.data = bytes.Clone(data)
	}
	return p
}

// The library writes a request again if the connection that it took from the pool breaks. A server
// closes idle connections at any time, and all of them when it restarts. So the pool is emptied
// before the second try. The library also writes again if an HTTP/2 server accepts no more streams
// on a connection. Without a bound, a message that makes the server close connections would be
// written to all of them.
const (
	replaysFromPool = 1
	maxReplays      = 8
)

var (
	errReleased = errors.New("the request is over")
	errReplays  = errors.New("connections broke before the endpoint answered")
)

// open returns the bytes from the beginning, for a first attempt.
func (p *payload) open() io.ReadCloser {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.data) == 0 && !p.released:
		return http.NoBody
	case p.copied && !p.released:
		return io.NopCloser(bytes.NewReader(p.data))
	}
	return &payloadReader{from: p}
}

// reopen is http.Request.GetBody.
func (p *payload) reopen() (io.ReadCloser, error) {
	p.mu.Lock()
	p.replays++
	n := p.replays
	p.mu.Unlock()
	switch {
	case n > maxReplays:
		return nil, errReplays
	case n == replaysFromPool+1:
		p.drop()
	}
	return p.open(), nil
}

// release returns when no goroutine reads the message's bytes any more.
func (p *payload) release() {
	p.mu.Lock()
	p.data, p.released = nil, true
	p.mu.Unlock()
}

type payloadReader struct {
	from   *payload
	offset int
}

func (r *payloadReader) Read(buf []byte) (int, error) {
	r.from.mu.Lock()
	defer r.from.mu.Unlock()
	switch {
	case r.from.released:
		return 0, errReleased
	case r.offset == len(r.from.data):
		return 0, io.EOF
	}
	n := copy(buf, r.from.data[r.offset:])
	r.offset += n
	return n, nil
}

func (r *payloadReader) Close() error { return nil }
