package shell

import (
	"os/exec"
	"testing"
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
		if got := Visible(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

// Suggested commands are pasted into a shell.
func TestWord(t *testing.T) {
	for _, s := range []string{"orders", "größe", "a b", "", "it's", "$HOME `id` \\", "a\nb", "tab\t'q' \\n", "-x", "\x1b[2J", "\u202e"} {
		word := Word(s)
		for _, r := range word {
			if Hidden(r) {
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
