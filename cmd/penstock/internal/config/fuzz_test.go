package config

import (
	"errors"
	"strings"
	"testing"
)

// Whatever is in the file, there is no panic, no hang and no secret in the error. An accepted file
// prints as an accepted file of the same meaning.
func FuzzLoad(f *testing.F) {
	for _, suffix := range []string{".good.yaml", ".bad.yaml"} {
		for _, seed := range testFiles(f, suffix) {
			f.Add([]byte(seed.text))
		}
	}
	for _, s := range []string{
		"\ufeff" + small, strings.ReplaceAll(small, "\n", "\r\n"), "a: &a [*a]", "{{{{[[[[", "- - - -", "? ? ?", "a: |\n  x\n b", "a: >-\n\n\n  x",
		"relay: {lease: '${SECRET}'}", "schema: \"\\u0000\\x00\"", "a:\n  - b:\n    - c: [1, {d: e}]", "%TAG ! x\n--- !x", "'': ''", "null: ~", "1: 2", "<<: x", "...\n---\n...",
	} {
		f.Add([]byte(s))
	}
	const secret = "correct-horse-9f27"
	fuzzed := Loader{
		LookupEnv: func(name string) (string, bool) { return secret, name == "SECRET" || len(name)%2 == 0 },
		ReadFile:  func(string) ([]byte, error) { return []byte(secret + "\n"), nil },
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := fuzzed.LoadBytes("penstock.yaml", data)
		if err != nil {
			if strings.Contains(err.Error(), secret) {
				t.Fatalf("shows the secret: %v", err)
			}
			var es Errors
			if !errors.As(err, &es) || len(es) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		printed := c.String()
		again, err := fuzzed.LoadBytes("printed", []byte(printed))
		if strings.Contains(printed, ": file:") || strings.Contains(printed, `"file:`) || strings.Contains(printed, "secrets:") {
			return // a file cannot contain a literal file:, and a masked secret signs nothing
		}
		if err != nil {
			t.Fatalf("accepted, but not as printed:\n%s\n%v", printed, err)
		}
		if again.String() != printed {
			t.Fatalf("means something else as printed:\n%s\n%s", printed, again)
		}
	})
}
