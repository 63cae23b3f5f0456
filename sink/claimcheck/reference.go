package claimcheck

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/penstock/penstock"
)

// Reference stands in a message in place of its payload: as JSON in the header
// penstock.HeaderClaimCheck.
type Reference struct {
	// URL is where the payload is: s3://BUCKET/PREFIX/NAME or file:///DIRECTORY/NAME.
	URL string `json:"url"`
	// Bytes is the size of the payload.
	Bytes int64 `json:"bytes"`
	// SHA256 is the hash of the payload, in hexadecimal.
	SHA256 string `json:"sha256"`
	// ContentType is the message's header content-type, if it has one.
	ContentType string `json:"content_type,omitempty"`
}

// Name is the last part of the URL: 64 hexadecimal digits. Any other URL is an error.
func (r *Reference) Name() (string, error) {
	name := path.Base(r.URL)
	if len(name) != 2*sha256.Size || strings.Trim(name, "0123456789abcdef") != "" {
		return "", fmt.Errorf("claim check: the URL %q does not end in a name that Penstock gives", r.URL)
	}
	return name, nil
}

// ErrAltered: the stored payload is not the one that was published.
var ErrAltered = errors.New("the stored payload is not the one that was published")

// Open returns the payload of a message as it was published. The reference is the value of the message's
// header penstock.HeaderClaimCheck. If it is empty, that is the payload itself. Otherwise get reads the
// object of that name, for example a Store's Get, and Open verifies size and SHA-256.
//
// The consumer decides with get which bucket or directory is read. The reference names only the object in it.
func Open(ctx context.Context, reference string, payload []byte, get func(ctx context.Context, name string) (io.ReadCloser, error)) ([]byte, error) {
	if reference == "" {
		return payload, nil
	}
	var r Reference
	if err := json.Unmarshal([]byte(reference), &r); err != nil {
		return nil, fmt.Errorf("claim check: the header %s cannot be read: %w", penstock.HeaderClaimCheck, err)
	}
	name, err := r.Name()
	if err != nil {
		return nil, err
	}
	if r.Bytes < 0 || r.Bytes > penstock.MaxPayloadBytes {
		return nil, fmt.Errorf("claim check: %s has %d bytes, and no payload has", r.URL, r.Bytes)
	}
	stored, err := get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("claim check: %s: %w", r.URL, err)
	}
	defer stored.Close()
	opened, err := io.ReadAll(io.LimitReader(stored, r.Bytes+1))
	if err != nil {
		return nil, fmt.Errorf("claim check: %s: %w", r.URL, err)
	}
	if sum := sha256.Sum256(opened); int64(len(opened)) != r.Bytes || hex.EncodeToString(sum[:]) != r.SHA256 {
		return nil, fmt.Errorf("claim check: %s: %w: it has %d bytes or more, of %d", r.URL, ErrAltered, len(opened), r.Bytes)
	}
	return opened, nil
}
