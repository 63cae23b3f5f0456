package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/lines"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/writer"
)

// LineFlags set where JSON lines come from, how many make a transaction, and how to treat bad
// ones.
type LineFlags struct {
	File     string
	Batch    int
	progress bool
	goOn     bool
	rejects  string
}

// Add adds the flags.
func (f *LineFlags) Add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.File, "file", "f", "", "`file` to read JSON lines from, - for stdin")
	flags.IntVar(&f.Batch, "batch", 1000, "`number` of lines per transaction, 0 for all in one")
	flags.BoolVar(&f.progress, "progress", false, "show progress even if stderr is not a terminal")
	flags.BoolVar(&f.goOn, "continue-on-error", false, "put refused lines into a file and continue with the next")
	flags.StringVar(&f.rejects, "rejects", "", "`file` for lines that --continue-on-error refuses (default that of --file with .rejects at its end)")
}

// Check reports flags that exclude each other.
func (f *LineFlags) Check() error {
	return cmp.Or(
		Refuse(f.Batch < 0, "--batch is negative: use 1 or more, or 0 for one transaction"),
		Refuse(f.rejects != "" && !f.goOn, "--rejects goes with --continue-on-error"),
		Refuse(f.goOn && f.Batch == 0, "--batch is 0 and --continue-on-error is given: one transaction is all or nothing, so leave one of them out"),
		Refuse(f.goOn && f.rejects == "" && (f.File == "" || f.File == "-"), "--continue-on-error needs --rejects FILE when the lines come from stdin"))
}

// Writer collects items and writes a batch in one call.
func (f *LineFlags) Writer(store writer.Store) *writer.Writer {
	o := writer.Options{Rows: f.Batch}
	if f.goOn {
		o.Delay = time.Millisecond // each line is a separate call
	}
	return writer.New(store, o)
}

// OpenInput opens the file that a flag names, or stdin for -.
func (a *App) OpenInput(flag, file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(a.Stdin), nil
	}
	opened, err := os.Open(file)
	if err != nil {
		return nil, terminal.Usage(fmt.Errorf("%s: %w", flag, err))
	}
	return opened, nil
}

// ReadPayload reads at most one byte more than a message or a job may hold, to notice a larger payload.
func (a *App) ReadPayload(ctx context.Context, flag, file string) ([]byte, error) {
	in, err := a.OpenInput(flag, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	payload, err := io.ReadAll(io.LimitReader(UntilDone(ctx, in), penstock.MaxPayloadBytes+1))
	return payload, about.While(err, flag)
}

// Numbered returns a parser that gives each item an id made of its source and of all lines up to it. By these ids a
// repeated import recognizes the lines that it has written.
func (f *LineFlags) Numbered(to string) func(line []byte) string {
	all := sha256.New()
	fmt.Fprintf(all, "%s\x00%s\x00", to, f.File)
	return func(line []byte) string {
		_, _ = all.Write(line)
		return hex.EncodeToString(all.Sum(nil)[:16])
	}
}

// rejects is a file of refused lines, unchanged.
type rejects struct {
	a    *App
	name string
	file *os.File
	n    int64
}

// maxReasons is how many reasons are printed; others are counted.
const maxReasons = 100

func (r *rejects) add(bad []lines.Bad) (err error) {
	slices.SortFunc(bad, func(a, b lines.Bad) int { return a.Line - b.Line })
	for i := range bad {
		if r.file == nil {
			if r.file, err = os.Create(r.name); err != nil {
				return terminal.Usage(fmt.Errorf("--rejects: %w", err))
			}
		}
		if r.n++; r.n <= maxReasons {
			fmt.Fprintln(r.a.Stderr, bad[i].Error.Error())
		}
		if _, err := fmt.Fprintf(r.file, "%s\n", bytes.TrimRight(bad[i].Text, "\r\n")); err != nil {
			return err
		}
	}
	return nil
}

func (r *rejects) close(item string) error {
	if r.file == nil {
		return nil
	}
	if err := r.file.Close(); err != nil {
		return err
	}
	return terminal.Usage(fmt.Errorf("%s refused: see %s", terminal.Plural(r.n, item), r.name))
}

// Send gives items of one transaction to a writer; wait returns the result.
type Send[T any] func(ctx context.Context, items []T) (wait func(context.Context) error, err error)

// Refuses reports whether an error of writing to store is about the content of a line.
func Refuses(store any) func(error) bool {
	judge, ok := store.(driver.ContentJudge)
	return func(err error) bool {
		var field *penstock.FieldError
		return errors.As(err, &field) || ok && judge.RefusesContent(err)
	}
}

// Carried is how much of the input was written.
type Carried struct{ Sent, Rejected int64 }

// CarryLines passes the items of the input to send, each batch as one transaction. If bad ones are skipped, each line is
// a separate transaction. It reads one batch ahead.
func CarryLines[T any](ctx context.Context, a *App, f *LineFlags, kind *lines.Kind[T], send Send[T], refuses func(error) bool) (done Carried, err error) {
	in, err := a.OpenInput("--file", cmp.Or(f.File, "-"))
	if err != nil {
		return done, err
	}
	defer in.Close()
	progress := terminal.NewProgress(a.Stderr, f.progress)
	defer progress.Clear()
	refused := &rejects{a: a, name: cmp.Or(f.rejects, f.File+".rejects")}
	defer func() {
		err = errors.Join(err, refused.close(kind.Item))
		done.Rejected = refused.n
	}()
	reader := lines.NewReader(UntilDone(ctx, in), kind)
	reader.KeepBad = f.goOn
	for batch, err := range readAhead(reader, f.Batch) {
		if errors.Is(err, context.Canceled) {
			fmt.Fprintln(a.Stderr, "penstock:", progressMade(kind.Words, done.Sent, batch.First))
			return done, err
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return done, fmt.Errorf("%w; %s", terminal.Usage(err), progressMade(kind.Words, done.Sent, batch.First))
		}
		sent, err := carry(context.WithoutCancel(ctx), f.goOn, &batch, send, refuses)
		if done.Sent += sent; err != nil {
			return done, fmt.Errorf("%s lines %d to %d: %w; %s", kind.Doing, batch.First, batch.Last, err, progressMade(kind.Words, done.Sent, batch.First))
		}
		if err := refused.add(batch.Bad); err != nil {
			return done, err
		}
		progress.Show(fmt.Sprintf("%s %s", terminal.Plural(done.Sent, kind.Item), kind.Past))
	}
	return done, nil
}

// readAhead reads the next batch while one is used. The last batch has an error, which may be
// io.EOF.
func readAhead[T any](r *lines.Reader[T], size int) func(yield func(lines.Batch[T], error) bool) {
	type read struct {
		batch lines.Batch[T]
		err   error
	}
	return func(yield func(lines.Batch[T], error) bool) {
		next, stop := make(chan read), make(chan struct{})
		defer close(stop)
		go func() {
			for err := error(nil); err == nil; {
				var b lines.Batch[T]
				b, err = r.Batch(size)
				select {
				case next <- read{b, err}:
				case <-stop:
					return
				}
			}
		}()
		for {
			if one := <-next; !yield(one.batch, one.err) || one.err != nil {
				return
			}
		}
	}
}

// carry sends a batch, whole or line by line, and returns how many items are known to be written. Refused items are
// added to its bad lines.
func carry[T any](ctx context.Context, single bool, b *lines.Batch[T], send Send[T], refuses func(error) bool) (sent int64, err error) {
	if len(b.Items) == 0 {
		return 0, nil
	}
	step := len(b.Items)
	if single {
		step = 1
	}
	var waits []func(context.Context) error
	for i := 0; i < len(b.Items) && err == nil; i += step {
		var wait func(context.Context) error
		if wait, err = send(ctx, b.Items[i:i+step]); err == nil {
			waits = append(waits, wait)
		}
	}
	for i, wait := range waits {
		switch failed := wait(ctx); {
		case failed == nil:
			sent += int64(step)
		case single && refuses(failed):
			b.Bad = append(b.Bad, lines.Bad{Error: lines.Error{Line: b.Numbers[i], Err: failed}, Text: b.Lines[i]})
		default:
			err = cmp.Or(err, failed)
		}
	}
	return sent, err
}

// progressMade lists which lines a repeated run must not repeat.
func progressMade(w *lines.Words, sent int64, from int) string {
	if sent == 0 {
		return "nothing was " + w.Past
	}
	return fmt.Sprintf("%s %s, nothing from line %d on: repeat with tail -n +%d", terminal.Plural(sent, w.Item), w.Past, from, from)
}

// ReadHeaders reads name=value, which an error calls as, from each flag; it returns nil without flags.
func ReadHeaders(flags []string, as string) (map[string]string, error) {
	if len(flags) == 0 {
		return nil, nil
	}
	headers := make(map[string]string, len(flags))
	for _, header := range flags {
		name, value, ok := strings.Cut(header, "=")
		if !ok {
			return nil, terminal.Usage(fmt.Errorf("--header %q has no =: write %s", header, as))
		}
		if _, twice := headers[name]; twice {
			return nil, terminal.Usage(fmt.Errorf("--header %s is given twice: a header has one value", shell.Visible(name)))
		}
		headers[name] = value
	}
	return headers, nil
}
