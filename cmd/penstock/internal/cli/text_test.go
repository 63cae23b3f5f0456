package cli

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/cli/clitest"
	"github.com/penstock/penstock/internal/shell"
)

func TestVisible(t *testing.T) {
	for s, want := range map[string]string{
		"":                 "",
		"größe 漢字 🙂":       "größe 漢字 🙂",
		"a\nb\r\tc":        `a\nb\r\tc`,
		"\x1b[2J\x00\x7f":  `\x1b[2J\x00\x7f`,
		"\u0085\u202eabc":  `\x85\u202eabc`,
		"bad \xff, \ufffd": "bad \\xff, \ufffd",
		"\U000e0001":       `\U000e0001`,
	} {
		clitest.Same(t, fmt.Sprintf("%q", s), Visible(s), want)
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	table := NewTable(&out, Right("N"), Cut("NAME", 6), Left("LAST"))
	for _, row := range [][]string{{"1", "short", "x"}, {"12", "a\nvery long one", ""}, {"3", "größer", "y z"}} {
		table.Row(row...)
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	clitest.Same(t, "table", out.String(), " N  NAME    LAST\n 1  short   x\n12  a\\nve…  -\n 3  größer  y z\n")
	out.Reset()
	for i := range 3 * learnFrom {
		table.Row(fmt.Sprint(i), "n", strings.Repeat("z", i%3))
		if i > learnFrom+1 && out.Len() == 0 {
			t.Fatal("nothing is written as it goes")
		}
	}
}

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

// What is suggested is pasted into a shell.
func TestShellWord(t *testing.T) {
	for _, s := range []string{"orders", "größe", "a b", "", "it's", "$HOME `id` \\", "a\nb", "tab\t'q' \\n", "-x", "\x1b[2J", "\u202e"} {
		word := ShellWord(s)
		for _, r := range word {
			if shell.Hidden(r) {
				t.Errorf("%q is written as %q", s, word)
			}
		}
		if _, err := exec.LookPath("bash"); err != nil {
			continue
		}
		out, err := exec.Command("bash", "-c", "LC_ALL=C.UTF-8; printf %s "+word).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q is written as %s, which is %q, %v", s, word, out, err)
		}
	}
}
