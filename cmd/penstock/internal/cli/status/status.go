// Package status has penstock status.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func Command(a *cli.App) *cobra.Command {
	var (
		watch, wide, groups, exact bool
		every                      time.Duration
		adopting                   adopt.Flags
	)
	cmd := terminal.Verb("status [OUTBOX|QUEUE|SUBSCRIPTION]", "Show backlogs, rates, sizes, relays, queues and inboxes",
		a.Opened(func(ctx context.Context, store driver.Database, args []string) error {
			if every <= 0 {
				return terminal.Usage(fmt.Errorf("--every is %v: use a time such as 2s", every))
			}
			for {
				found, err := readAll(ctx, a, store, &adopting, exact, args)
				if err == nil && groups {
					err = readGroups(ctx, store, found.Queues)
				}
				if err == nil && !a.JSON {
					found.left, err = readLeft(ctx, store, found.Queues, args)
				}
				if found.left.refused {
					found.unseen = append(found.unseen, "leases of running jobs")
				}
				if watch && ctx.Err() != nil {
					return nil // interrupting is how a watch ends
				}
				if err != nil {
					return err
				}
				if err := showStatus(a, found, watch, wide); err != nil || !watch {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(every):
				}
			}
		}))
	a.WithJSON(cmd, "one JSON line, times in nanoseconds")
	cmd.Flags().BoolVar(&wide, "wide", false, "every column, and names in full, however wide that is")
	cmd.Flags().BoolVar(&exact, "exact", false, "count everything, which reads it: about a second for some millions")
	cmd.Flags().BoolVar(&groups, "groups", false, "also the groups of queues")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "repeat until interrupted")
	adopting.Add(cmd.Flags())
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "with --watch: `duration` between two readings")
	return cmd
}

// statusOf is the data that status shows. Parts that the role may not read are nil: a relay's role
// sees no queues, and a queue operator's role no outboxes.
type statusOf struct {
	Outboxes []admin.OutboxStatus `json:"outboxes,omitzero"`
	Queues   []admin.QueueStatus  `json:"queues,omitzero"`
	Adopted  []adoptedStatus      `json:"adopted,omitempty"`
	Inboxes  []admin.InboxStatus  `json:"inboxes,omitempty"`

	unseen []string // kinds of things that the role may not read
	hidden error    // names single queues that the role may not read, and the grant
	left   left
}

// adoptedStatus is a subscription over an adopted table, or why it has no status: an error of such
// a table must not hide the others.
type adoptedStatus struct {
	Table string `json:"table"`
	admin.SubscriptionStatus
	Error string `json:"error,omitempty"`

	argument string // of other verbs
}

// readAll reads the status of everything, or of the named outbox, queue or adopting subscription.
func readAll(ctx context.Context, a *cli.App, store driver.Database, f *adopt.Flags, exact bool, only []string) (s statusOf, err error) {
	if f.Preset != "" || f.Table != "" {
		of, err := f.Named(append(only, "")[0])
		if err != nil {
			return s, err
		}
		s = statusOf{Outboxes: []admin.OutboxStatus{}, Queues: []admin.QueueStatus{}}
		s.Adopted, err = readAdopted(ctx, a, []adopt.Subscription{*of})
		return s, err
	}
	var refused []error
	most := cli.CountedUpTo
	if exact {
		most = 0
	}
	readOutboxes := begin(ctx, func(ctx context.Context) ([]admin.OutboxStatus, error) { return cli.StatusUpTo(ctx, store, most) })
	readQueues := begin(ctx, func(ctx context.Context) ([]admin.QueueStatus, error) {
		return store.QueueStatusUpTo(ctx, most, only...)
	})
	if s.Outboxes, err = readKind(readOutboxes, "outboxes", &s, &refused); err != nil {
		return s, err
	}
	if s.Queues, err = readKind(readQueues, "queues", &s, &refused); err != nil {
		return s, err
	}
	if queues, ok := store.(cli.UnreadQueuesReader); ok && len(only) == 0 && s.Queues != nil {
		names, err := queues.UnreadQueues(ctx)
		if err != nil {
			return s, fmt.Errorf("reading the names of queues: %w", err)
		}
		s.hidden = pgerror.UnreadQueues(names)
	}
	kinds := 2
	if len(only) == 0 {
		kinds++
		if s.Inboxes, err = readKind(begin(ctx, store.Inboxes), "inboxes", &s, &refused); err != nil {
			return s, err
		}
	}
	adoptions, err := adopt.Configured(a)
	if err != nil {
		return s, err
	}
	if len(only) > 0 {
		adoptions = slices.DeleteFunc(adoptions, func(of adopt.Subscription) bool { return of.Name != only[0] })
		s.Outboxes = slices.DeleteFunc(s.Outboxes, func(o admin.OutboxStatus) bool { return o.Outbox != only[0] })
		s.Queues = slices.DeleteFunc(s.Queues, func(q admin.QueueStatus) bool { return q.Queue != only[0] })
		if len(s.Outboxes)+len(s.Queues)+len(adoptions) == 0 {
			if _, ok := store.(cli.Granter); !ok && len(refused) > 0 {
				return s, refused[0]
			}
			return s, notFound(ctx, store, only[0], s.unseen)
		}
		s.unseen = nil // the named thing is not in it
	}
	if len(refused) == kinds && len(adoptions) == 0 {
		hint, hinted := errors.AsType[*penstock.HintError](refused[0])
		if _, roles := store.(cli.Granter); roles && hinted { // the hint of the first one is for outboxes
			return s, penstock.WithHint(fmt.Errorf("reading the status: %w", hint.Err), "the owner of the schema can grant it: %s", cli.SeeGrants)
		}
		return s, refused[0]
	}
	s.Adopted, err = readAdopted(ctx, a, adoptions)
	return s, err
}

// begin reads in the background. Hundreds of outboxes and of queues take half a second each, in
// separate sessions.
func begin[T any](ctx context.Context, read func(context.Context) ([]T, error)) func() ([]T, error) {
	var (
		found []T
		err   error
	)
	done := make(chan struct{})
	go func() {
		defer close(done)
		found, err = read(ctx)
	}()
	return func() ([]T, error) {
		<-done
		return found, err
	}
}

// readKind reads all things of a kind as a list that is not nil, or returns nil and refused if
// this role may not read them.
func readKind[T any](read func() ([]T, error), kind string, s *statusOf, refused *[]error) ([]T, error) {
	found, err := read()
	if err == nil {
		return append([]T{}, found...), nil // [] rather than null
	}
	err = fmt.Errorf("reading the status of %s: %w", kind, err)
	if !pgerror.IsForbidden(err) {
		return nil, err
	}
	s.unseen = append(s.unseen, kind)
	*refused = append(*refused, err)
	return nil, nil
}

// notFound is the error for an unknown name. unseen are the kinds of things that the role may not
// read: one of them may have that name.
func notFound(ctx context.Context, store driver.Database, name string, unseen []string) error {
	if !slices.Contains(unseen, "queues") {
		if _, err := cli.IsQueue(ctx, store, name); pgerror.IsForbidden(err) {
			return notSeen(fmt.Errorf("queue %q: this role may not see it", name), name, []string{"queues"})
		}
	}
	if len(unseen) > 0 {
		return notSeen(fmt.Errorf("nothing that this role may see is called %q, and %s it may not read", name, strings.Join(unseen, " and ")), name, unseen)
	}
	return penstock.WithHint(about.Outbox(penstock.ErrNoOutbox, "", name, ""), "nor is there a queue of that name; penstock status without a name shows all")
}

// notSeen names who may show the thing of that name to this role, whatever its kind.
func notSeen(err error, name string, unseen []string) error {
	var grants []string
	if slices.Contains(unseen, "queues") {
		grants = append(grants, fmt.Sprintf("penstock queue grant %s ROLE --operate", shell.Word(name)))
	}
	if slices.Contains(unseen, "outboxes") {
		grants = append(grants, "penstock outbox grant ROLE --relay")
	}
	return &terminal.ExitError{Code: terminal.ExitDatabase, Err: penstock.WithHint(err, "the owner of the schema can grant it: %s", strings.Join(grants, ", or if it is an outbox "))}
}

func readAdopted(ctx context.Context, a *cli.App, adoptions []adopt.Subscription) (all []adoptedStatus, err error) {
	for i := range adoptions {
		table, err := adopt.Open(ctx, a, &adoptions[i])
		if err != nil {
			return nil, err
		}
		status, err := table.Adopted.Status(ctx)
		err = errors.Join(err, table.Close())
		switch {
		case ctx.Err() != nil || pgerror.IsDown(err):
			return nil, fmt.Errorf("reading the status of adopted tables: %w", err)
		case err != nil:
			all = append(all, adoptedStatus{Table: table.Config.Table, SubscriptionStatus: admin.SubscriptionStatus{Subscription: table.Name}, Error: terminal.OneLine(err.Error())})
		default:
			all = append(all, adoptedStatus{Table: table.Config.Table, SubscriptionStatus: status, argument: table.Argument()})
		}
	}
	return all, nil
}

// NewWriter writes to w for people.
func NewWriter(w io.Writer, a *cli.App, now time.Time) *Writer {
	return &Writer{Writer: w, suggest: a.Suggest, now: now}
}

func showStatus(a *cli.App, s statusOf, watch, wide bool) error {
	if a.JSON {
		return json.NewEncoder(a.Stdout).Encode(s)
	}
	if watch && terminal.IsTerminal(a.Stdout) {
		fmt.Fprint(a.Stdout, "\x1b[H\x1b[2J") // home, clear
	}
	if len(s.Outboxes)+len(s.Queues)+len(s.Adopted)+len(s.Inboxes) == 0 && len(s.unseen) == 0 && s.hidden == nil {
		fmt.Fprintln(a.Stdout, a.Suggest("There is nothing yet: penstock outbox create NAME makes an outbox, penstock queue create NAME a queue."))
		return nil
	}
	w := NewWriter(a.Stdout, a, time.Now())
	w.wide, w.left = wide, s.left
	w.outboxes(s.Outboxes)
	w.adopted(s.Adopted)
	if len(s.unseen) > 0 {
		fmt.Fprintf(a.Stderr, "penstock: %s are not shown: this role may not read them\n", strings.Join(s.unseen, " and "))
	}
	if s.hidden != nil {
		fmt.Fprintln(a.Stderr, a.Suggest("penstock: "+terminal.OneLine(s.hidden.Error())))
	}
	w.queues(s.Queues)
	return w.Inboxes(s.Inboxes)
}
