package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	// A limit on the size of files is an error of the write, not the end of the
	// process.
	signal.Ignore(syscall.SIGXFSZ)
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main with everything it touches given to it, and returns the exit
// code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: &results{w: stdout}, stderr: &scrubber{w: stderr}, getenv: os.Getenv}
	return a.run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.InitDefaultCompletionCmd() // writes to what is set above
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		// Cobra's own shows its help for a shell that it does not know.
		completion.Args = knownVerb
		completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	failed, err := root.ExecuteContextC(ctx)
	if out, ok := a.stdout.(*results); ok && out.err != nil {
		// Whatever became of it, nobody has read what it said.
		err = &exitError{code: exitFailure, err: fmt.Errorf("writing to standard output: %w", out.err)}
	}
	return a.report(failed, err)
}

// results is stdout, and remembers the first write that failed.
type results struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (r *results) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = cmp.Or(r.err, err)
	}
	return n, err
}
