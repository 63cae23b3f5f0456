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

Relays and applications that publish have grants of their own, in SQL: see
"Privileges on PostgreSQL" in docs/cli.md.`
	cmd.Example = `  penstock queue grant mails webshop --enqueue
  penstock queue grant mails mail_worker --work
  penstock queue grant mails oncall --operate`
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
			store, err := a.openStore(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			return a.grant(ctx, store, to, rights, args[0], args[1], asJSON)
		},
	}
	for i, r := range to.rights {
		cmd.Flags().BoolVar(&wanted[i], r.flag, false, r.help)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "what was granted as one JSON line")
	return cmd
}

func (a *app) grant(ctx context.Context, store penstock.Store, to grantable, rights []right, name, role string, asJSON bool) error {
	g, ok := store.(granter)
	if !ok {
		return usage(errors.New("this database has no roles: whoever may write the file may do everything; grants are for PostgreSQL"))
	}
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
