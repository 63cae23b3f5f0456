package cli

import (
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/cli/clitest"
)

func TestSpans(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "65535d": 65535 * 24 * time.Hour, "250ms": 250 * time.Millisecond,
	} {
		if d, err := ParseSpan(s); err != nil || d != want {
			t.Errorf("%s: %v, %v", s, d, err)
		}
	}
	for _, s := range []string{"", "7", "d", "-1h", "-1d", "+1d", "1d-1h", "1d+1h", "1.5d", "1h1d", "99999d", "65536d", "65535d2540400h", "x"} {
		if d, err := ParseSpan(s); err == nil {
			t.Errorf("%q is taken for %v", s, d)
		}
	}
	for _, s := range []string{"1d12h", "90ms", "7d", "1h1m1s", "0s"} {
		d, err := ParseSpan(s)
		if err != nil {
			t.Fatal(err)
		}
		clitest.Same(t, s, SpanText(d), s)
	}
}
