package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// After a request is over, the library may still use its body, but no longer gets the message's
// bytes: that memory is reused by then.
func TestBodiesEndWithTheirRequest(t *testing.T) {
	for what, end := range map[string]func() (*http.Response, error){
		"answered": func() (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		},
		"given up": func() (*http.Response, error) { return nil, errors.New("given up") },
	} {
		s, err := Open(Config{URL: "http://endpoint.test/"}, nil)
		must(t, err)
		var bodies []io.ReadCloser
		small, large := message("m", ""), message("m", "")
		small.Payload, large.Payload = bytes.Repeat([]byte("a"), copyLimit), bytes.Repeat([]byte("a"), copyLimit+1)
		s.transport.RegisterProtocol("http", roundTrip(func(req *http.Request) (*http.Response, error) {
			again, err := req.GetBody()
			must(t, err)
			bodies = append(bodies, req.Body, again, &opensLate{open: req.GetBody})
			if n, err := io.ReadFull(req.Body, make([]byte, 5)); n != 5 || err != nil {
				t.Errorf("%s: the body has %d bytes, %v", what, n, err)
			}
			return end()
		}))
		for _, m := range []penstock.Message{small, large} {
			bodies = nil
			s.Send(t.Context(), []penstock.Message{m})
			copy(m.Payload, bytes.Repeat([]byte("b"), len(m.Payload)))
			for i, body := range bodies {
				got := make([]byte, 5)
				if n, err := body.Read(got); n > 0 && string(got) != "aaaaa" || n == 0 && !errors.Is(err, errReleased) {
					t.Errorf("%s: body %d of %d bytes had %d more after Send, %q, %v", what, i, len(m.Payload), n, got[:n], err)
				}
			}
		}
		must(t, s.Close(t.Context()))
	}
}

// opensLate asks for another body when the first byte is read.
type opensLate struct {
	open func() (io.ReadCloser, error)
	body io.ReadCloser
}

func (o *opensLate) Read(buf []byte) (n int, err error) {
	if o.body == nil {
		if o.body, err = o.open(); err != nil {
			return 0, err
		}
	}
	return o.body.Read(buf)
}

func (o *opensLate) Close() error { return nil }

// A small message is one write, as with any client whose body is in memory.
func TestSmallMessagesAreWrittenAtOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	s, err := Open(Config{URL: server.URL, AllowPrivate: true}, nil)
	must(t, err)
	var writes atomic.Int32
	dial := s.transport.DialContext
	s.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return countingConn{conn, &writes}, err
	}
	for range 3 {
		for _, err := range s.Send(t.Context(), []penstock.Message{message("m", "")}) {
			must(t, err)
		}
	}
	if n := writes.Load(); n != 3 {
		t.Errorf("3 messages were %d writes", n)
	}
	must(t, s.Close(t.Context()))
}

type countingConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// The limit holds however many connections others return to the pool meanwhile.
func TestReplaysEnd(t *testing.T) {
	dropped := 0
	p := payload{data: []byte("x"), drop: func() { dropped++ }}
	for i := range maxReplays {
		body, err := p.reopen()
		must(t, err)
		if got, err := io.ReadAll(body); string(got) != "x" || err != nil {
			t.Errorf("replay %d: %q, %v", i, got, err)
		}
	}
	if _, err := p.reopen(); !errors.Is(err, errReplays) {
		t.Errorf("replay %d: %v", maxReplays, err)
	}
	if dropped != 1 {
		t.Errorf("the pool was emptied %d times", dropped)
	}
}
