package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// retentionSetter has the methods of a store that change the retention.
type retentionSetter interface {
	cli.StatusReader
	SetRetention(ctx context.Context, outbox string, r admin.Retention) error
}

// retentionFlags say how long settled messages are kept. A nil flag leaves the setting unchanged.
type retentionFlags struct {
	ageText, bytesText string
	age                *time.Duration
	bytes              *int64
}

func (f *retentionFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.ageText, "retain-age", "", "keep settled messages for this `duration`, such as 24h or 7d; off keeps none for their age")
	flags.StringVar(&f.bytesText, "retain-bytes", "", "keep settled messages up to this `size`, such as 1GiB; off keeps none for their size")
}

// read parses the given flags and reports whether there are any.
func (f *retentionFlags) read(flags *pflag.FlagSet) (bool, error) {
	if flags.Changed("retain-age") {
		f.age = new(time.Duration)
		if !isOff(f.ageText) {
			age, err := cli.ParseSpan(f.ageText)
			if err != nil {
				return false, terminal.Usage(fmt.Errorf("--retain-age is %q: %w, or off", f.ageText, err))
			}
			*f.age = age
		}
	}
	if flags.Changed("retain-bytes") {
		f.bytes = new(int64)
		if !isOff(f.bytesText) {
			bytes, err := cli.ParseSize(f.bytesText)
			if err != nil {
				return false, terminal.Usage(fmt.Errorf("--retain-bytes is %q: %w, or off", f.bytesText, err))
			}
			*f.bytes = bytes
		}
	}
	return f.age != nil || f.bytes != nil, nil
}

func isOff(s string) bool { return s == "off" || s == "0" }

// apply changes the given limits and leaves the others.
func (f *retentionFlags) apply(ctx context.Context, store retentionSetter, outbox string) (admin.Retention, error) {
	found, err := cli.ReadStatus(ctx, store, []string{outbox})
	if err != nil {
		return admin.Retention{}, err
	}
	r := found[0].Retention
	if f.age != nil {
		r.Age = *f.age
	}
	if f.bytes != nil {
		r.Bytes = *f.bytes
	}
	return r, about.Outbox(store.SetRetention(ctx, outbox, r), "setting the retention", outbox, "")
}

func setCommand(a *cli.App) *cobra.Command {
	var f retentionFlags
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Set how long an outbox keeps settled messages",
		Long: `Set an outbox's retention: how long it keeps messages that every subscription has
settled. penstock replay can deliver them again, and penstock tail shows them. By
default none are kept. A flag that is not given leaves its limit as it is; 0 or off
turns it off.

With both limits a message is removed when it exceeds one of them. Storage is freed in
larger units, so messages may stay longer. Messages that a subscription has not
delivered are always kept.`,
		Example: `  penstock outbox set orders --retain-age 24h
  penstock outbox set orders --retain-age 7d --retain-bytes 10GiB
  penstock outbox set orders --retain-bytes off`,
		Args: terminal.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			given, err := f.read(cmd.Flags())
			if err != nil {
				return err
			}
			if !given {
				return terminal.Misuse(errors.New("nothing to set: give --retain-age or --retain-bytes"))
			}
			store, err := a.OpenStore(ctx)
			if err != nil {
				return err
			}
			r, err := f.apply(ctx, store, args[0])
			if err != nil {
				return err
			}
			return a.Tell(map[string]any{"outbox": args[0], "retention": r}, "Outbox %s keeps settled messages: %s.\n", shell.Visible(args[0]), cli.RetentionText(r))
		},
	}
	f.add(cmd.Flags())
	return a.WithJSON(cmd, "the new settings, as one JSON line")
}
