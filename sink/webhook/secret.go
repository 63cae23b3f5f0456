package webhook

import (
	"fmt"
	"log/slog"

	"github.com/penstock/penstock/internal/redact"
)

// Secret is a text that is masked in logs, errors and printed configurations.
type Secret string

// Reveal returns the text itself.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redact.Masked
}

// Format masks the secret with every verb, also with %#v and %x.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, s.String()) }

// LogValue masks the secret in slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText masks the secret in JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
