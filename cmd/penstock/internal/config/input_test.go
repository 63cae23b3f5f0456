package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/settings"
)

const small = "database_url: sqlite:app.db\nsubscriptions:\n- {name: a, outbox: b, sink: stdout}\n"

// Characters that no editor shows, and input that is made to hurt a parser.
func TestInput(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ","))
	}
	for _, tc := range []struct{ name, text, want string }{
		{"plain", small, ""},
		{"byte order mark", "\ufeff" + small, ""},
		{"CRLF", strings.ReplaceAll(small, "\n", "\r\n"), ""},
		{"no newline at the end", strings.TrimSuffix(small, "\n"), ""},
		{"--- and comments", "# first\n---\n" + small + "...\n# last\n", ""},
		{"CR", "database_url: sqlite:a\rb: c\n", "f:1:23: has the control character U+000D: end lines with a newline"},
		{"NUL", "database_url: a\nschema: a\x00b\n", "f:2:10: has the control character U+0000: remove it"},
		{"escape", "log: \x1b[2J\n", "f:1:6: has the control character U+001B"},
		{"second byte order mark", "a: \ufeffb\n", "f:1:4: has the control character U+FEFF"},
		{"not UTF-8", "größe: 1\nname: \xff\n", "f:2:7: has the byte 0xff, which is not UTF-8: save it as UTF-8"},
		{"replacement character", "\ufffd: 1\n", "is not a known key"},
		{"UTF-16", "\xff\xfea\x00:\x00", "f: is UTF-16: save it as UTF-8"},
		{"too large", strings.Repeat("#", MaxBytes+1), "f: is larger than 1048576 bytes: is this the right file?"},
		{"as large as may be", small + strings.Repeat("#", MaxBytes-len(small)), ""},
		{"deep brackets", "schema: " + strings.Repeat("[", 100_000), "f:1:40: is nested more than 32 levels deep"},
		{"deep braces", strings.Repeat("{a: ", 100_000), "nested more than 32 levels deep"},
		{"deep lists", strings.Repeat("- ", 100_000), "nested more than 32 levels deep"},
		{"deep mappings", deepMapping(1000), "nested more than 32 levels deep"},
		{"wide mapping", wideMapping(50_000), "has more than 10000 entries in one place"},
		{"wide list", "subscriptions:\n" + strings.Repeat("- a\n", 200_000), "has more than 10000 entries in one place"},
		{"wide flow list", "subscriptions: [" + strings.Repeat("a,", 200_000) + "]", "has more than 10000 entries in one place"},
		{"alias bomb", bomb, "f:1:4: has a YAML anchor or alias"},
		{"brackets closed too often", "a: ]]]}}}\n", "f:1:"},
		{"not UTF-8 from the environment", strings.Replace(small, "name: a", `name: "${BINARY}"`, 1), "subscriptions[0].name is not valid UTF-8"},
		{"one long key", strings.Repeat("x", 1<<19) + ": 1", "f:1:1: xxxxxxxxxxxxxxxxxxxx… is not a known key"},
		{"one long value", "relay: {senders: " + strings.Repeat("x", 1<<19) + "}", "xxx … xxx"},
		{"one long line", "schema: " + strings.Repeat("x", 1<<19) + "\n" + strings.Replace(small, "sqlite:app.db", "oracle://x", 1), `unknown scheme "oracle"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loader.LoadBytes("f", []byte(tc.text))
			switch {
			case tc.want == "" && err != nil:
				t.Fatal(err)
			case tc.want != "" && err == nil:
				t.Fatal("no error")
			case tc.want != "" && !strings.Contains(err.Error(), tc.want):
				t.Fatalf("got %.300v\nwant %s", err, tc.want)
			case err != nil && len(err.Error()) > 4000:
				t.Fatalf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func deepMapping(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
	}
	return b.String()
}

func wideMapping(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	return b.String()
}

// A file with a thousand mistakes does not print a thousand mistakes.
func TestManyErrorsAreCut(t *testing.T) {
	_, err := loader.LoadBytes("f", []byte(small+wideMapping(1000)))
	if err == nil || !strings.HasSuffix(err.Error(), "and 980 more") {
		t.Fatalf("%.2000v", err)
	}
}

func TestInterpolation(t *testing.T) {
	r := &resolver{lookupEnv: lookup, readFile: readTestdata, dir: "testdata", filledIn: func(string, string) {}}
	for _, tc := range []struct{ in, want string }{
		{"plain", "plain"},
		{"${SENDERS}", "4"},
		{"a${SENDERS}b${SENDERS}", "a4b4"},
		{"${EMPTY}", ""},
		{"${EMPTY:-x}", "x"},
		{"${NOT_SET:-}", ""},
		{"${NOT_SET:-a:-b}", "a:-b"},
		{"$${SENDERS}", "${SENDERS}"},
		{"$$$$", "$$"},
		{"5$$", "5$"},
		{"file:secrets/password", "hunter2"},
		{"file:secrets/${NOT_SET:-password}", "hunter2"},
		{"see file:x", "see file:x"},
		// Values from outside are only read as values.
		{"${NOT_SET:-file:secrets/password}", "file:secrets/password"},
	} {
		got, p := r.resolve(tc.in)
		if p != nil || got != tc.want {
			t.Errorf("%s: got %q, %v; want %q", tc.in, got, p, tc.want)
		}
	}
}

func TestWhatIsFilledInIsNotInterpolatedAgain(t *testing.T) {
	r := &resolver{
		filledIn:  func(string, string) {},
		lookupEnv: func(string) (string, bool) { return "${A} $$ $", true },
		readFile:  func(string) ([]byte, error) { return []byte("${A} $$ $\n\n"), nil },
	}
	if got, p := r.resolve("${A}"); got != "${A} $$ $" {
		t.Errorf("environment: %q, %v", got, p)
	}
	if got, p := r.resolve("file:/a"); got != "${A} $$ $\n" {
		t.Errorf("file: %q, %v", got, p)
	}
}

// A value that contains YAML stays one value.
func TestNoYAMLInjection(t *testing.T) {
	c, err := loader.LoadBytes("f", []byte(strings.Replace(small, "outbox: b", `outbox: "${INJECTION}"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Subscriptions[0].Outbox; got != env["INJECTION"] || c.Schema != "" || c.Subscriptions[0].Sink.Name() != "stdout" {
		t.Errorf("outbox %q, schema %q, sink %s", got, c.Schema, c.Subscriptions[0].Sink.Name())
	}
}

func TestDatabaseURLFromTheCommandLine(t *testing.T) {
	l := loader
	l.DatabaseURL = "postgres://me:pa$$w${ORD}@localhost/x"
	for _, text := range []string{
		"database_url: ${NOT_SET}\n" + small[strings.Index(small, "subs"):],
		small[strings.Index(small, "subs"):],
	} {
		c, err := l.LoadBytes("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if c.DatabaseURL.Reveal() != l.DatabaseURL {
			t.Errorf("got %q", c.DatabaseURL.Reveal())
		}
	}
}

func TestSizesAndDurations(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1: "1B", 1023: "1023B", 1024: "1KiB", 3 << 20: "3MiB", 1<<30 + 1: "1073741825B", 5 << 30: "5GiB"} {
		if got := formatSize(n); got != want {
			t.Errorf("formatSize(%d) = %q, want %q", n, got, want)
		}
		if got, problem, _ := settings.ParseSize(want); problem != "" || got != n {
			t.Errorf("ParseSize(%q) = %d, %s", want, got, problem)
		}
	}
	for _, bad := range []string{"", "MiB", "1.5MiB", "+1KiB", "-1", "1mib", "1 M", "0x10", "9223372036854775807GiB", "4294967297GiB"} {
		if n, problem, _ := settings.ParseSize(bad); problem == "" {
			t.Errorf("ParseSize(%q) = %d", bad, n)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"exchange", "routing_key", "url", "mandatory"}
	for in, want := range map[string]string{
		"exhange": "exchange", "exchagne": "exchange", "routing-key": "routing_key", "routingKey": "routing_key", "urls": "url", "uri": "url",
		"queue": "", "x": "", "": "", "mandatry": "mandatory", strings.Repeat("url", 100): "",
	} {
		if got := nearest(in, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", in, got, want)
		}
	}
}
