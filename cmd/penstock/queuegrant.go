package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// queueGranter is a store whose database knows roles.
type queueGranter interface {
	GrantEnqueuer(ctx context.Context, queue, role string) error
	GrantWorker(ctx context.Context, queue, role string) error
	GrantOperator(ctx context.Context, queue, role string) error
}

// queueRight is one of the things that a role may be let do to a queue.
type queueRight struct {
	flag, help string
	grant      func(queueGranter, context.Context, string, string) error
}

var queueRights = []queueRight{
	{"enqueue", "enqueue jobs, and nothing else", queueGranter.GrantEnqueuer},
	{"work", "claim jobs and settle them, as penstock work does", queueGranter.GrantWorker},
	{"operate", "look after it: status, dead letters, pause, cancel", queueGranter.GrantOperator},
}

func (a *app) queueGrantCommand() *cobra.Command {
	var (
		asJSON bool
		wanted = make([]bool, len(queueRights))
	)
	cmd := &cobra.Command{
		Use:   "grant QUEUE ROLE",
		Short: "Let a role of the database use a queue",
		Long: `Let a role of PostgreSQL use one queue, with no more rights than its part needs. The
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
"Privileges on PostgreSQL" in docs/cli.md.`,
		Example: `  penstock queue grant mails webshop --enqueue
  penstock queue grant mails mail_worker --work
  penstock queue grant mails oncall --operate`,
		Args: exactly("QUEUE", "ROLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			var rights []queueRight
			for i, w := range wanted {
				if w {
					rights = append(rights, queueRights[i])
				}
			}
			if len(rights) == 0 {
				return misuse(errors.New("nothing to grant: give --enqueue, --work or --operate"))
			}
			store, err := a.openStore(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			granter, ok := store.(queueGranter)
			if !ok {
				return errNoRoles()
			}
			return a.grantQueue(ctx, granter, args[0], args[1], rights, asJSON)
		},
	}
	for i, r := range queueRights {
		cmd.Flags().BoolVar(&wanted[i], r.flag, false, r.help)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "what was granted as one JSON line")
	return cmd
}

func (a *app) grantQueue(ctx context.Context, store queueGranter, queue, role string, rights []queueRight, asJSON bool) error {
	names := make([]string, len(rights))
	for i, r := range rights {
		if err := r.grant(store, ctx, queue, role); err != nil {
			return aboutQueue(err, "granting --"+r.flag, queue)
		}
		names[i] = r.flag
	}
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(map[string]any{"queue": queue, "role": role, "granted": names})
	}
	fmt.Fprintf(a.stdout, "Role %s may %s on queue %s.\n", visible(role), strings.Join(names, " and "), visible(queue))
	return nil
}
