package webhook

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/penstock/penstock"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Whatever the library still does with a request's body when it is over, it no
// longer gets the message's bytes.
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
		s.transport.RegisterProtocol("http", roundTrip(func(req *http.Request) (*http.Response, error) {
			again, err := req.GetBody()
			must(t, err)
			bodies = append(bodies, req.Body, again)
			if n, err := io.ReadFull(req.Body, make([]byte, 5)); n != 5 || err != nil {
				t.Errorf("%s: the body has %d bytes, %v", what, n, err)
			}
			return end()
		}))
		s.Send(t.Context(), []penstock.Message{message("m", "")})
		for _, body := range bodies {
			if n, err := body.Read(make([]byte, 5)); n != 0 || !errors.Is(err, errReleased) {
				t.Errorf("%s: after Send %d more bytes were read, %v", what, n, err)
			}
		}
		must(t, s.Close(t.Context()))
	}
}

// However many connections others put back into the pool meanwhile.
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
