package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"strings"
	"sync"
)

// Lengths of signing keys that Standard Webhooks requires.
const (
	secretPrefix = "whsec_"
	minKeyBytes  = 24
	maxKeyBytes  = 64
)

// signingKey decodes a secret. The error names the fault, without showing it.
func signingKey(s Secret) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.Reveal(), secretPrefix))
	switch {
	case err != nil:
		return nil, errors.New("is not base64")
	case len(key) < minKeyBytes || len(key) > maxKeyBytes:
		return nil, errors.New("is not base64 of 24 to 64 bytes")
	}
	return key, nil
}

// signer makes the value of webhook-signature,
//
//	v1,<base64 of HMAC-SHA256(id.timestamp.payload)> v1,…
//
// one part per key: https://www.standardwebhooks.com. Safe for concurrent use.
type signer struct {
	pool sync.Pool // of *signing
}

// signing is the memory for one signature. Making an HMAC costs more than using
// one.
type signing struct {
	macs           []hash.Hash
	head, sum, out []byte
}

func newSigner(keys [][]byte) *signer {
	s := &signer{}
	s.pool.New = func() any {
		w := &signing{macs: make([]hash.Hash, len(keys))}
		for i, key := range keys {
			w.macs[i] = hmac.New(sha256.New, key)
		}
		return w
	}
	return s
}

func (s *signer) sign(id, timestamp string, payload []byte) string {
	w := s.pool.Get().(*signing)
	defer s.pool.Put(w)
	w.head = append(append(append(append(w.head[:0], id...), '.'), timestamp...), '.')
	out := w.out[:0]
	for i, mac := range w.macs {
		mac.Reset()
		mac.Write(w.head)
		mac.Write(payload)
		if i > 0 {
			out = append(out, ' ')
		}
		out = append(out, "v1,"...)
		w.sum = mac.Sum(w.sum[:0])
		out = base64.StdEncoding.AppendEncode(out, w.sum)
	}
	w.out = out
	return string(out)
}
