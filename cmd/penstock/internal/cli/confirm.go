package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
		return fmt.Errorf("%s: the answer was not yes", c.Undone)
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
	return fmt.Errorf("%s: that is not its name", c.Undone)
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
