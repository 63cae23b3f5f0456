package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/penstock/penstock/internal/terminal"
)

// Consent is how a verb that destroys or repeats something gets permission.
type Consent struct {
	Yes bool // --yes
	// Undone is the action that did not happen without permission: "nothing was dropped".
	Undone string
}

// asks reports whether there is a user to ask.
func (a *App) asks() bool {
	return a.Interactive || terminal.IsTerminal(a.Stdin) && terminal.IsTerminal(a.Stderr)
}

// Possible fails if no user can be asked and --yes was not given. Call it before any work.
func (a *App) Possible(c Consent) error {
	if c.Yes || a.asks() {
		return nil
	}
	return terminal.Usage(fmt.Errorf("%s: there is no terminal to ask on, pass --yes if you mean it", c.Undone))
}

// Confirm asks a question and returns an error unless the answer is y.
func (a *App) Confirm(ctx context.Context, c Consent, question string) error {
	agreed, err := a.Agrees(ctx, c, question)
	if err == nil && !agreed {
		return fmt.Errorf("%s: it was not confirmed", c.Undone)
	}
	return err
}

// Agrees asks a question that may be answered with no.
func (a *App) Agrees(ctx context.Context, c Consent, question string) (bool, error) {
	if c.Yes {
		return true, nil
	}
	answer, err := a.ask(ctx, c, question+" [y/N] ")
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes", err
}

// ConfirmName requires the name to be typed, because a y is often typed by habit.
func (a *App) ConfirmName(ctx context.Context, c Consent, warning, name string) error {
	if c.Yes {
		return nil
	}
	answer, err := a.ask(ctx, c, warning+"\nType its name to continue: ")
	if err != nil {
		return err
	}
	if answer == name {
		return nil
	}
	return fmt.Errorf("%s: the name does not match", c.Undone)
}

func (a *App) ask(ctx context.Context, c Consent, prompt string) (string, error) {
	if err := a.Possible(c); err != nil {
		return "", err
	}
	fmt.Fprint(a.Stderr, prompt)
	if a.answers == nil { // one for all questions: it reads ahead
		a.answers = bufio.NewReader(UntilDone(ctx, a.Stdin))
	}
	answer, err := a.answers.ReadString('\n')
	if err != nil {
		fmt.Fprintln(a.Stderr) // the prompt has a separate line
		if errors.Is(err, context.Canceled) {
			return "", err
		}
		if answer == "" {
			return "", fmt.Errorf("%s: no answer: %w", c.Undone, err)
		}
	}
	return strings.TrimSpace(answer), nil
}

// UntilDone reads r, which may be a terminal or a pipe without a writer, until ctx ends. The
// goroutine that reads ahead ends with r or with the process, because a read of a terminal cannot
// be cancelled.
func UntilDone(ctx context.Context, r io.Reader) io.Reader {
	type chunk struct {
		data []byte
		err  error
	}
	chunks := make(chan chunk)
	go func() {
		for {
			data := make([]byte, 64<<10)
			n, err := r.Read(data)
			select {
			case chunks <- chunk{data[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	var rest chunk
	return readerFunc(func(p []byte) (int, error) {
		for len(rest.data) == 0 && rest.err == nil {
			select {
			case rest = <-chunks:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		n := copy(p, rest.data)
		if rest.data = rest.data[n:]; n > 0 {
			return n, nil
		}
		return 0, rest.err
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
