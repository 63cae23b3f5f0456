package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock"
)

// granter is a store whose database knows roles.
type granter interface {
	GrantProducer(ctx context.Context, outbox, role string) error
	GrantRelay(ctx context.Context, role string) error
	GrantEnqueuer(ctx context.Context, queue, role string) error
	GrantWorker(ctx context.Context, queue, role string) error
	GrantOperator(ctx context.Context, queue, role string) error
	GrantConsumer(ctx context.Context, consumer, role string) error
	GrantInboxOperator(ctx context.Context, consumer, role string) error
}

// right is one of the things that a role may be let do.
type right struct {
	flag, help string
	grant      func(store granter, ctx context.Context, name, role string) error
}

// grantable is what there are rights to.
type grantable struct {
	kind, argument string // queue, QUEUE
	rights         []right
	about          func(err error, doing, name string) error
}

var grantableQueue = grantable{"queue", "QUEUE", []right{
	{"enqueue", "enqueue jobs, and nothing else", granter.GrantEnqueuer},
	{"work", "claim jobs and settle them, as penstock work does", granter.GrantWorker},
	{"operate", "look after it: status, dead letters, pause, cancel", granter.GrantOperator},
}, aboutQueue}

var grantableInbox = grantable{"inbox", "CONSUMER", []right{
	{"consume", "receive, and nothing else", granter.GrantConsumer},
	{"operate", "look after it: status, held, gaps, release, discard", granter.GrantInboxOperator},
}, aboutInbox}

func (a *app) queueGrantCommand() *cobra.Command {
	cmd := a.grantCommand(grantableQueue)
	cmd.Short = "Let a role of the database use a queue"
	cmd.Long = `Let a role of PostgreSQL use one queue, with no more rights than its part needs. The
role must exist, and it is the owner of the schema who grants.

  --enqueue  for applications: it can write jobs, by penstock.enqueue, by a plain
             INSERT or with penstock enqueue, and cannot read any
  --work     for workers: it can claim jobs and settle them, and cannot read what it
             has not claimed
  --operate  for people: it can see the queue's status, list, retry and discard dead
             letters, pause, resume and cancel, and can neither enqueue nor claim

Several together grant each. To grant twice changes nothing. A right ends with
"revoke", "drop owned by ROLE" or with the queue.

Relays and applications that publish have theirs by penstock outbox grant.`
	cmd.Example = `  penstock queue grant mails webshop --enqueue
  penstock queue grant mails mail_worker --work
  penstock queue grant mails oncall --operate`
	return cmd
}

func (a *app) outboxGrantCommand() *cobra.Command {
	var publish, relay, asJSON bool
	cmd := &cobra.Command{
		Use:   "grant OUTBOX ROLE --publish | grant ROLE --relay",
		Short: "Let a role of the database publish, or relay",
		Long: `Let a role of PostgreSQL publish to one outbox, or relay every outbox, with no more
rights than that needs. The role must exist, and it is the owner of the schema who
grants.

  --publish  for applications: it can write messages to OUTBOX, by penstock.publish, by
             a plain INSERT or with penstock publish, and cannot read any
  --relay    for relays, and for people who look after them: relay, status, tail, dead,
             parked and replay, of every outbox, now and later. It cannot publish

To grant twice changes nothing. A right to publish ends with "revoke", "drop owned by
ROLE" or with the outbox; that to relay with "drop owned by ROLE".`,
		Example: `  penstock outbox grant orders webshop --publish
  penstock outbox grant relay_role --relay`,
		Args: args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			switch {
			case publish == relay:
				return misuse(errors.New("what to grant is not clear: give --publish or --relay"))
			case publish && len(args) != 2:
				return misuse(errors.New("--publish is for one outbox: give OUTBOX and ROLE"))
			case relay && len(args) != 1:
				return misuse(errors.New("--relay is for every outbox: give ROLE alone"))
			}
			store, g, err := a.openGranter(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			role := args[len(args)-1]
			if relay {
				if err := g.GrantRelay(ctx, role); err != nil {
					return fmt.Errorf("granting --relay: %w", err)
				}
				return a.tell(asJSON, map[string]any{"role": role, "granted": []string{"relay"}}, "Role %s may relay every outbox.\n", visible(role))
			}
			if err := g.GrantProducer(ctx, args[0], role); err != nil {
				return about(err, "granting --publish", args[0], "")
			}
			return a.tell(asJSON, map[string]any{"outbox": args[0], "role": role, "granted": []string{"publish"}},
				"Role %s may publish on outbox %s.\n", visible(role), visible(args[0]))
		},
	}
	cmd.Flags().BoolVar(&publish, "publish", false, "write messages to one outbox, and nothing else")
	cmd.Flags().BoolVar(&relay, "relay", false, "relay every outbox and look after it, and publish nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "what was granted as one JSON line")
	return cmd
}

func (a *app) inboxGrantCommand() *cobra.Command {
	cmd := a.grantCommand(grantableInbox)
	cmd.Short = "Let a role of the database use an inbox"
	cmd.Long = `Let a role of PostgreSQL use one inbox, with no more rights than its part needs. The
role must exist, and it is the owner of the schema who grants.

  --consume  for the consumer: it can receive with this inbox
  --operate  for people: it can see sizes, what is held, with payloads, and gaps,
             and release or discard what is held

Both together grant both. To grant twice changes nothing. A right ends with
"revoke", "drop owned by ROLE" or with the inbox.`
	cmd.Example = `  penstock inbox grant billing billing_app --consume
  penstock inbox grant billing oncall --operate`
	return cmd
}

func (a *app) grantCommand(to grantable) *cobra.Command {
	var (
		asJSON bool
		wanted = make([]bool, len(to.rights))
	)
	cmd := &cobra.Command{
		Use:  "grant " + to.argument + " ROLE",
		Args: exactly(to.argument, "ROLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			var rights []right
			var flags []string
			for i, r := range to.rights {
				flags = append(flags, "--"+r.flag)
				if wanted[i] {
					rights = append(rights, r)
				}
			}
			if len(rights) == 0 {
				last := len(flags) - 1
				return misuse(fmt.Errorf("nothing to grant: give %s or %s", strings.Join(flags[:last], ", "), flags[last]))
			}
			store, g, err := a.openGranter(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			return a.grant(ctx, g, to, rights, args[0], args[1], asJSON)
		},
	}
	for i, r := range to.rights {
		cmd.Flags().BoolVar(&wanted[i], r.flag, false, r.help)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "what was granted as one JSON line")
	return cmd
}

// openGranter opens a database that knows roles. The caller closes the store.
func (a *app) openGranter(ctx context.Context) (penstock.Store, granter, error) {
	store, err := a.openStore(ctx)
	if err != nil {
		return nil, nil, err
	}
	g, ok := store.(granter)
	if !ok {
		return nil, nil, errors.Join(usage(errors.New("this database has no roles: whoever may write the file may do everything; grants are for PostgreSQL")), store.Close())
	}
	return store, g, nil
}

func (a *app) grant(ctx context.Context, g granter, to grantable, rights []right, name, role string, asJSON bool) error {
	granted := make([]string, len(rights))
	for i, r := range rights {
		if err := r.grant(g, ctx, name, role); err != nil {
			return to.about(err, "granting --"+r.flag, name)
		}
		granted[i] = r.flag
	}
	return a.tell(asJSON, map[string]any{strings.ToLower(to.argument): name, "role": role, "granted": granted},
		"Role %s may %s on %s %s.\n", visible(role), strings.Join(granted, " and "), to.kind, visible(name))
}
