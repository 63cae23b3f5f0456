package terminal

import (
	"bytes"
	"io"
	"net/url"
	"sync"

	"github.com/penstock/penstock/internal/redact"
)

// Scrubber is the last line of defence for secrets. Every package keeps them out of its errors and
// logs; if one fails to, the secret still does not reach the terminal.
type Scrubber struct {
	w io.Writer

	mu      sync.Mutex
	secrets [][2][]byte // the text to look for, the text to print instead
}

// NewScrubber writes to w.
func NewScrubber(w io.Writer) *Scrubber { return &Scrubber{w: w} }

// Hide masks the passwords in a URL wherever they are printed as in a URL or as in a connection
// string.
func (s *Scrubber) Hide(raw string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, password := range redact.Passwords(raw) {
		for _, form := range []string{password, url.QueryEscape(password), url.PathEscape(password)} {
			s.secrets = append(s.secrets,
				[2][]byte{[]byte(":" + form + "@"), []byte(":xxxxx@")},
				[2][]byte{[]byte("password=" + form), []byte("password=xxxxx")})
		}
	}
}

func (s *Scrubber) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clean := p
	for _, secret := range s.secrets {
		clean = bytes.ReplaceAll(clean, secret[0], secret[1])
	}
	if _, err := s.w.Write(clean); err != nil {
		return 0, err
	}
	return len(p), nil
}
