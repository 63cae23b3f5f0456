package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// consent is how a verb that destroys or repeats something gets leave to do it.
type consent struct {
	yes bool // --yes
	// undone says what did not happen when there is none: "nothing was dropped".
	undone string
}

// asks reports whether there is somebody to ask.
func (a *app) asks() bool { return a.interactive || isTerminal(a.stdin) && isTerminal(a.stderr) }

// possible fails where nobody can be asked and nobody has agreed. It comes
// before any work.
func (a *app) possible(c consent) error {
	if c.yes || a.asks() {
		return nil
	}
	return usage(fmt.Errorf("%s: there is no terminal to ask on, pass --yes if you mean it", c.undone))
}

// confirm asks a question that y answers.
func (a *app) confirm(ctx context.Context, c consent, question string) error {
	agreed, err := a.agrees(ctx, c, question)
	if err == nil && !agreed {
		return fmt.Errorf("%s: the answer was not yes", c.undone)
	}
	return err
}

// agrees asks a question whose answer may be no, too.
func (a *app) agrees(ctx context.Context, c consent, question string) (bool, error) {
	if c.yes {
		return true, nil
	}
	answer, err := a.ask(ctx, c, question+" [y/N] ")
	answer = strings.ToLower(answer)
	return answer == "y" || answer == "yes", err
}

// confirmName wants a name typed: a habitual y has dropped many a table.
func (a *app) confirmName(ctx context.Context, c consent, warning, name string) error {
	if c.yes {
		return nil
	}
	answer, err := a.ask(ctx, c, warning+"\nType its name to go on: ")
	if err != nil {
		return err
	}
	if answer == name {
		return nil
	}
	return fmt.Errorf("%s: that is not its name", c.undone)
}

func (a *app) ask(ctx context.Context, c consent, prompt string) (string, error) {
	if err := a.possible(c); err != nil {
		return "", err
	}
	fmt.Fprint(a.stderr, prompt)
	if a.answers == nil { // one for all questions: it reads ahead
		a.answers = bufio.NewReader(untilDone(ctx, a.stdin))
	}
	answer, err := a.answers.ReadString('\n')
	if err != nil {
		fmt.Fprintln(a.stderr) // the prompt has a line of its own
		if errors.Is(err, context.Canceled) {
			return "", err
		}
		if answer == "" {
			return "", fmt.Errorf("%s: no answer: %w", c.undone, err)
		}
	}
	return strings.TrimSpace(answer), nil
}
