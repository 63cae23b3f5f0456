package outbox

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

func grantCommand(a *cli.App) *cobra.Command {
	var publish, relay bool
	cmd := &cobra.Command{
		Use:   "grant OUTBOX ROLE --publish | grant ROLE --relay",
		Short: "Let a role of PostgreSQL publish, or relay",
		Long: `Let a role of PostgreSQL publish to one outbox, or relay every outbox, with no more
rights than that needs. The role must exist. Only the owner of the schema can grant.

  --publish  for applications: it can write messages to OUTBOX, by penstock.publish, by
             a plain INSERT or with penstock publish, and cannot read any
  --relay    for relays and their operators: relay, status, tail, dead, parked and
             replay, of every outbox, also of later ones. It cannot publish

A grant that exists already is not an error. To end a right, run "drop owned by ROLE"
or REVOKE in SQL; it stays ended with later outboxes and migrations.`,
		Example: `  penstock outbox grant orders webshop --publish
  penstock outbox grant relay_role --relay`,
		Args: terminal.Args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			switch {
			case publish == relay:
				return terminal.Misuse(errors.New("what to grant is not clear: give --publish or --relay"))
			case publish && len(args) != 2:
				return terminal.Misuse(errors.New("--publish is for one outbox: give OUTBOX and ROLE"))
			case relay && len(args) != 1:
				return terminal.Misuse(errors.New("--relay is for every outbox: give ROLE alone"))
			}
			g, err := a.OpenGranter(ctx)
			if err != nil {
				return err
			}
			role := args[len(args)-1]
			if relay {
				if err := g.GrantRelay(ctx, role); err != nil {
					return fmt.Errorf("granting --relay: %w", err)
				}
				return a.Tell(map[string]any{"role": role, "granted": []string{"relay"}}, "Role %s may relay every outbox.\n", shell.Visible(role))
			}
			if err := g.GrantProducer(ctx, args[0], role); err != nil {
				return about.Outbox(err, "granting --publish", args[0], "")
			}
			return a.Tell(map[string]any{"outbox": args[0], "role": role, "granted": []string{"publish"}},
				"Role %s may publish on outbox %s.\n", shell.Visible(role), shell.Visible(args[0]))
		},
	}
	cmd.Flags().BoolVar(&publish, "publish", false, "write messages to one outbox, and nothing else")
	cmd.Flags().BoolVar(&relay, "relay", false, "relay and operate every outbox, and publish nothing")
	return a.WithJSON(cmd, "the rights granted, as one JSON line")
}
