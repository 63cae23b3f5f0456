package dead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// deadLetters are the dead letters that flags choose: messages of a subscription or jobs of a queue.
type deadLetters struct {
	name      string         // for people
	arguments string         // for a suggested command line
	identity  map[string]any // for programs
	columns   []terminal.Column
	named     []string // those that the choice names one by one, by letter.names
	// page returns up to limit dead letters whose numbers are above after, in order.
	page func(ctx context.Context, after int64, limit int) ([]letter, error)
	// retry and discard return how many still existed.
	retry, discard act
	// resend sends the contents again, as new messages or jobs, if all still exist, and discards those that were sent if discard is not nil.
	resend func(discard act) act
}

// act acts on dead letters by their numbers.
type act func(ctx context.Context, numbers []int64) (int, error)

// letter is one dead letter.
type letter struct {
	number   int64    // orders the dead letters of a box and names one: a message's seq, a job's id
	names    []string // by which a choice may name it
	argument string   // flag or id that chooses it on a command line
	size     int      // bytes in memory, approximately
	cells    []string // its separate columns in the list
	facts    [][2]string
	json     func(death) any // for programs
	death
	payload []byte
}

// death is the part that messages and jobs share, for programs.
type death struct {
	Headers      map[string]string  `json:"headers,omitempty"`
	Report       json.RawMessage    `json:"report,omitempty"` // of a job
	PayloadBytes int                `json:"payload_bytes"`
	CreatedAt    time.Time          `json:"created_at"`
	DiedAt       time.Time          `json:"died_at"`
	Attempts     int                `json:"attempts"`
	Held         *bool              `json:"held,omitempty"` // of a message
	Error        string             `json:"error"`
	Failures     []penstock.Failure `json:"failures"`
	cli.PayloadJSON
}

func deathOf(m *penstock.Message, at time.Time, failures []penstock.Failure) death {
	d := death{Headers: m.Headers, PayloadBytes: len(m.Payload), CreatedAt: m.CreatedAt.UTC(), DiedAt: at.UTC(), Attempts: m.Attempt,
		Error: penstock.LastError(failures), Failures: cli.NotNull(failures)}
	if len(failures) > 0 { // those while it was parked count
		d.Attempts = max(d.Attempts, failures[len(failures)-1].Attempt)
	}
	return d
}

// row is its line in the list.
func (l *letter) row(now time.Time) []string {
	row := append(slices.Clone(l.cells), fmt.Sprint(l.Attempts), cli.Since(l.DiedAt, now))
	if l.Held != nil {
		row = append(row, terminal.YesNo(*l.Held))
	}
	return append(row, l.why())
}

// why is the first line of the last error. After an operator's reason, which is not an attempt, follows that of the last attempt.
func (l *letter) why() string {
	n := len(l.Failures)
	line, _, _ := strings.Cut(l.Error, "\n")
	if n < 2 || l.Failures[n-1].Attempt > 0 {
		return line
	}
	before, _, _ := strings.Cut(l.Failures[n-2].Err, "\n")
	return line + "; before: " + before
}

// text is for people, one fact per line.
func (l *letter) text(full bool, now time.Time) string {
	var out cli.DeadLetterText
	for _, fact := range l.facts {
		out.Line(fact[0], "%s", fact[1])
	}
	out.Times(l.CreatedAt, l.DiedAt, now, l.Attempts)
	if l.Held != nil && *l.Held {
		out.Line("held", "yes: later messages of its key wait until it is retried or discarded")
	}
	out.Headers(l.Headers)
	if l.Report != nil {
		out.Line("report", "%s", shell.Visible(string(l.Report)))
	}
	out.Failures(l.Failures)
	out.Payload(l.payload, full)
	return out.String()
}

// forPrograms is its JSON.
func (l *letter) forPrograms(withPayload bool) any {
	if withPayload {
		l.PayloadJSON = cli.PayloadFor(l.payload)
	}
	return l.json(l.death)
}

// orDash is a fact that may be empty.
func orDash(name, value string) [2]string {
	return [2]string{name, terminal.OrDash(shell.Visible(value))}
}

// openDeadLetters opens the database and finds the source of the dead letters: a queue, if there
// is one of that name, or a subscription.
func openDeadLetters(ctx context.Context, a *cli.App, name string, f *deadFlags, flags *pflag.FlagSet) (*deadLetters, error) {
	if f.Preset != "" || f.Table != "" {
		return adoptedDeadLetters(ctx, a, name, f, flags)
	}
	store, err := a.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	box, missing := findDeadLetters(ctx, store, name, f, flags)
	if !errors.Is(missing, penstock.ErrNoOutbox) {
		return box, missing
	}
	if box, err := adoptedDeadLetters(ctx, a, name, f, flags); box != nil || err != nil {
		return box, err
	}
	return nil, missing
}

// adoptedDeadLetters is openDeadLetters for the subscription of an adopted table. If there is none
// of that name, the box is nil.
func adoptedDeadLetters(ctx context.Context, a *cli.App, name string, f *deadFlags, flags *pflag.FlagSet) (*deadLetters, error) {
	table, err := adopt.Find(ctx, a, &f.Flags, name)
	if err != nil || table == nil {
		return nil, err
	}
	if one := f.ofJobs(); one != "" {
		return nil, terminal.Usage(errors.New(one + " chooses among jobs: leave it out, or name a queue"))
	}
	return f.ofSubscription(table, table.Config.Table, table.Name, table, flags), nil
}

func findDeadLetters(ctx context.Context, store driver.Database, name string, f *deadFlags, flags *pflag.FlagSet) (*deadLetters, error) {
	if f.Subscription == "" {
		found, err := cli.IsQueue(ctx, store, name)
		if err != nil {
			return nil, err
		}
		if found {
			return f.ofQueue(store, name, flags)
		}
	}
	if one := f.ofJobs(); one != "" {
		return nil, terminal.Usage(fmt.Errorf("%s chooses among jobs, and %s is not a queue: leave it out, or name a queue", one, shell.Visible(name)))
	}
	subscription, err := cli.ChooseSubscription(ctx, store, name, f.Subscription)
	if f.Subscription == "" && errors.Is(err, penstock.ErrNoOutbox) {
		return nil, penstock.WithHint(err, "nor is there a queue of that name; penstock status shows the outboxes and queues there are")
	}
	if err != nil {
		return nil, err
	}
	return f.ofSubscription(store, name, subscription, nil, flags), nil
}

// Pages of dead letters begin small and grow as far as the payloads permit.
const (
	firstPage, largestPage = 16, 500
	pageBytes              = 16 << 20
)

// eachPage hands the dead letters of a box to see, page by page in order, up to limit
// of them (0: all). No page is empty.
func eachPage(ctx context.Context, box *deadLetters, limit int, see func([]letter) error) error {
	size, after := firstPage, int64(0)
	for seen := 0; limit == 0 || seen < limit; {
		want := size
		if limit > 0 {
			want = min(size, limit-seen)
		}
		page, err := box.page(ctx, after, want)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := see(page); err != nil {
			return err
		}
		if len(page) < want {
			return nil
		}
		seen += len(page)
		after = page[len(page)-1].number
		size = nextPage(size, page)
	}
	return nil
}

func nextPage(size int, page []letter) int {
	bytes := 0
	for _, l := range page {
		bytes += l.size
	}
	switch {
	case bytes > 2*pageBytes:
		return max(size/4, 1)
	case bytes < pageBytes/4:
		return min(size*4, largestPage)
	}
	return size
}

// noDeadLetter is the error for names that no dead letter has.
func noDeadLetter(box *deadLetters, names []string) error {
	bySeq := ""
	if slices.ContainsFunc(names, isNumericID) {
		bySeq = "--seq chooses one by its seq; "
	}
	return penstock.WithHint(fmt.Errorf("%s has no such dead letter: %s", box.name, strings.Join(names, ", ")),
		"%spenstock dead list %s shows those there are; one that was sent back is not among them until it dies again", bySeq, box.arguments)
}

// isNumericID reports whether a name of a message is an id that could be meant as a seq. A job has only a number.
func isNumericID(name string) bool {
	digits, ok := strings.CutPrefix(name, `id "`)
	_, err := strconv.ParseUint(strings.TrimSuffix(digits, `"`), 10, 63)
	return ok && err == nil
}
