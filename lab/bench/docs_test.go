package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/docblock"
)

// wantCommand checks that bench has the verb, with these flags and this number of arguments.
func wantCommand(t *testing.T, args []string) {
	t.Helper()
	verb, rest, err := rootCommand(&app{stdout: io.Discard, stderr: terminal.NewScrubber(io.Discard), getenv: os.Getenv}).Find(args)
	if err == nil {
		err = verb.ParseFlags(rest)
	}
	if err == nil {
		err = verb.ValidateArgs(verb.Flags().Args())
	}
	if err != nil || !verb.Runnable() {
		t.Errorf("bench %q: %v", args, err)
	}
}

// The benchmarks that docs/reference/benchmarks.md shows are there, with these flags. TestMake of docstest asks make about its commands.
func TestBenchDocs(t *testing.T) {
	found := 0
	for _, c := range docblock.Commands(t, docblock.Of(t, "docs/reference/benchmarks.md", "sh")[0]) {
		var args []string
		switch c.Args[0] {
		case "bin/bench":
			args = c.Args[1:]
		case "make":
			if c.Args[1] != "bench" { // bench-hour takes a duration and queues
				continue
			}
			_, flags, _ := strings.Cut(strings.Join(c.Args, " "), " BENCH=")
			if args = strings.Fields(flags); len(args) == 0 || strings.HasPrefix(args[0], "-") {
				args = append([]string{"relay"}, args...) // as script/bench.sh does
			}
		default:
			continue
		}
		found++
		wantCommand(t, args)
	}
	if found < 5 {
		t.Errorf("only %d commands were found", found)
	}
}

// Each verb has a section in help.md, with an example, and each section is of a verb.
func TestHelp(t *testing.T) {
	root := rootCommand(&app{stdout: io.Discard, stderr: terminal.NewScrubber(io.Discard), getenv: os.Getenv})
	for _, verb := range root.Commands() {
		if verb.Long == "" || !strings.Contains(verb.Example, verb.CommandPath()) {
			t.Errorf("help.md has no text or no example of %s", verb.Name())
		}
		for _, c := range docblock.Commands(t, verb.Example) {
			wantCommand(t, c.Args[1:])
		}
	}
	if sections := strings.Count("\n"+help, "\n# "); sections != len(root.Commands())+1 {
		t.Errorf("help.md has %d sections for %d verbs and bench itself", sections, len(root.Commands()))
	}
}
