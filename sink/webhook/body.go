package webhook

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// payload lends a message's bytes to the requests that carry it. The HTTP
// library may still be writing a body when the answer is there already, or
// when it gave the request up; the bytes are the relay's again once Send has
// returned. So reading ends with release.
type payload struct {
	mu       sync.Mutex
	data     []byte
	released bool
	replays  int
	// drop closes the connections in the pool.
	drop func()
}

// The library writes a request again if the connection that it took from the
// pool breaks, since a server closes idle connections when it likes, and all of
// them when it restarts; so the second time the pool is emptied first. It also
// does if an HTTP/2 server takes no more streams on a connection. Without a bound, a
// message that makes the server hang up would be written to every connection
// there is.
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
	if len(p.data) == 0 {
		return http.NoBody
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

// release returns when nobody reads the bytes any more.
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
