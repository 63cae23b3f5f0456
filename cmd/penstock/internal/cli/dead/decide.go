package dead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/terminal"
)

// deadAction is one of the decisions about dead letters.
type deadAction struct {
	verb, past string // retry, retried
	short      string
	atOnce     int
	// asks whether this choice is broad enough to require a question.
	asks func(*deadFlags) bool
	do   func(*deadLetters) act
}

var (
	retryDead = deadAction{
		verb: "retry", past: "retried", atOnce: largestPage, do: func(b *deadLetters) act { return b.retry },
		short: "Send dead letters again, or run them again",
		asks:  func(f *deadFlags) bool { return f.all },
	}
	discardDead = deadAction{
		verb: "discard", past: "discarded", atOnce: largestPage, do: func(b *deadLetters) act { return b.discard },
		short: "Delete dead letters permanently",
		asks:  func(f *deadFlags) bool { return !f.byName },
	}
	resendDead = deadAction{
		verb: "resend", past: "sent again", atOnce: firstPage, do: func(b *deadLetters) act { return b.resend(nil) }, // all contents are in memory
		short: "Send the contents of dead letters again, as new",
		asks:  func(f *deadFlags) bool { return f.all },
	}
)

var errNoResend = penstock.WithHint(errors.New("this cannot be sent again as new"), "penstock dead retry NAME sends it again under its own id")

func actionCommand(a *cli.App, action deadAction) *cobra.Command {
	var (
		f        deadFlags
		progress bool
		discard  bool
		dryRun   bool
		leave    = cli.Consent{Undone: "nothing was " + action.past}
	)
	cmd := terminal.Verb(action.verb+" OUTBOX|QUEUE|SUBSCRIPTION [ID…]", action.short, func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if err := f.check(cmd.Flags(), args[1:]); err != nil {
			return err
		}
		if !f.narrowed && !f.all && !dryRun {
			return terminal.Misuse(fmt.Errorf("%s: say which dead letters by ID, --key, --error and so on, or --all", leave.Undone))
		}
		leave.Yes = leave.Yes || dryRun || !action.asks(&f)
		box, err := openDeadLetters(ctx, a, args[0], &f, cmd.Flags())
		if err != nil {
			return err
		}
		if dryRun {
			action = deadAction{past: "chosen", atOnce: largestPage, do: func(*deadLetters) act {
				return func(_ context.Context, page []int64) (int, error) { return len(page), nil }
			}}
		} else if discard {
			action.do = func(b *deadLetters) act { return b.resend(b.discard) }
		}
		p := terminal.NewProgress(a.Stderr, progress)
		defer p.Clear()
		done, err := decide(ctx, a, box, f.Limit, action, leave, p)
		p.Clear()
		return errors.Join(decided(a, box, action, done, err), err)
	})
	f.add(cmd.Flags())
	flags := cmd.Flags()
	if action.verb == resendDead.verb {
		flags.BoolVar(&discard, "discard", false, "delete each once it was sent")
	}
	flags.BoolVar(&f.all, "all", false, "all of them; asks first")
	flags.BoolVar(&leave.Yes, "yes", false, "do not ask")
	flags.BoolVar(&dryRun, "dry-run", false, "show how many are chosen, and change nothing")
	a.WithJSON(cmd, "how many, as one JSON line")
	flags.BoolVar(&progress, "progress", false, "show progress even if stderr is not a terminal")
	return cmd
}

// decisions counts the dead letters that were decided.
type decisions struct{ chosen, done int }

// decide chooses first, and then acts only on the chosen letters. Letters that die in between are
// left alone, because it has not asked about them. So letters that are retried and die at once are
// not retried forever.
func decide(ctx context.Context, a *cli.App, box *deadLetters, limit int, action deadAction, leave cli.Consent, p *terminal.Progress) (n decisions, err error) {
	numbers, err := chooseDead(ctx, box, limit, p)
	if err != nil || len(numbers) == 0 {
		return n, err
	}
	p.Clear()
	question := fmt.Sprintf("%s %s of %s?", action.verb, terminal.Plural(int64(len(numbers)), "dead letter"), box.name)
	if err := a.Confirm(ctx, leave, question); err != nil {
		return n, err
	}
	n.chosen = len(numbers)
	for page := range slices.Chunk(numbers, action.atOnce) {
		did, err := action.do(box)(ctx, page)
		n.done += did
		if err != nil {
			return n, fmt.Errorf("after %d of %d: %w", n.done, n.chosen, err)
		}
		p.Show(fmt.Sprintf("%s of %s %s", terminal.Count(int64(n.done)), terminal.Count(int64(n.chosen)), action.past))
	}
	return n, nil
}

// chooseDead returns the numbers of the dead letters of a box. If a named one does not exist, it
// returns an error and no action follows: perhaps the subscription is the wrong one.
func chooseDead(ctx context.Context, box *deadLetters, limit int, p *terminal.Progress) ([]int64, error) {
	var numbers []int64
	missing := slices.Clone(box.named)
	err := eachPage(ctx, box, limit, func(page []letter) error {
		for _, l := range page {
			numbers = append(numbers, l.number)
			if len(missing) > 0 {
				missing = slices.DeleteFunc(missing, func(name string) bool { return slices.Contains(l.names, name) })
			}
		}
		p.Show(terminal.Plural(int64(len(numbers)), "dead letter") + " found")
		return nil
	})
	if err == nil && (limit == 0 || len(numbers) < limit) && len(missing) > 0 {
		return nil, noDeadLetter(box, missing)
	}
	return numbers, err
}

// decided prints the result, also after an error.
func decided(a *cli.App, box *deadLetters, action deadAction, n decisions, err error) error {
	if err != nil && n.chosen == 0 {
		return nil
	}
	fields := box.identity
	fields[strings.ReplaceAll(action.past, " ", "_")] = n.done
	text := fmt.Sprintf("%s of %s %s", terminal.Plural(int64(n.done), "dead letter"), box.name, action.past)
	if left := n.chosen - n.done; left > 0 && err == nil {
		text += fmt.Sprintf("; %s meanwhile decided by another operator", terminal.Count(int64(left)))
	} else if left > 0 {
		text += fmt.Sprintf(", %s not", terminal.Count(int64(left)))
	}
	return a.Tell(fields, "%s.\n", text)
}
