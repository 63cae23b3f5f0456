package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// inboxGranter is a store whose database knows roles.
type inboxGranter interface {
	GrantConsumer(ctx context.Context, consumer, role string) error
	GrantInboxOperator(ctx context.Context, consumer, role string) error
}

func (a *app) inboxGrantCommand() *cobra.Command {
	var consume, operate, asJSON bool
	cmd := &cobra.Command{
		Use:   "grant CONSUMER ROLE",
		Short: "Let a role of the database use an inbox",
		Long: `Let a role of PostgreSQL use one inbox, with no more rights than its part needs. The
role must exist, and it is the owner of the schema who grants.

  --consume  for the consumer: it can receive with this inbox
  --operate  for people: it can see sizes, what is held, with payloads, and gaps,
             and release or discard what is held

Both together grant both. To grant twice changes nothing. A right ends with
"revoke", "drop owned by ROLE" or with the inbox.`,
		Example: `  penstock inbox grant billing billing_app --consume
  penstock inbox grant billing oncall --operate`,
		Args: exactly("CONSUMER", "ROLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			if !consume && !operate {
				return misuse(errors.New("nothing to grant: give --consume or --operate"))
			}
			store, err := a.openStore(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			granter, ok := store.(inboxGranter)
			if !ok {
				return errNoRoles()
			}
			var granted []string
			for _, right := range []struct {
				wanted bool
				name   string
				grant  func(ctx context.Context, consumer, role string) error
			}{{consume, "consume", granter.GrantConsumer}, {operate, "operate", granter.GrantInboxOperator}} {
				if !right.wanted {
					continue
				}
				if err := right.grant(ctx, args[0], args[1]); err != nil {
					return aboutInbox(err, "granting --"+right.name, args[0])
				}
				granted = append(granted, right.name)
			}
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(map[string]any{"consumer": args[0], "role": args[1], "granted": granted})
			}
			fmt.Fprintf(a.stdout, "Role %s may %s on inbox %s.\n", visible(args[1]), strings.Join(granted, " and "), visible(args[0]))
			return nil
		},
	}
	cmd.Flags().BoolVar(&consume, "consume", false, "receive, and nothing else")
	cmd.Flags().BoolVar(&operate, "operate", false, "look after it: status, held, gaps, release, discard")
	cmd.Flags().BoolVar(&asJSON, "json", false, "what was granted as one JSON line")
	return cmd
}

// errNoRoles is what a verb that grants says where nothing can be granted.
func errNoRoles() error {
	return usage(errors.New("this database has no roles: whoever may write the file may do everything; grants are for PostgreSQL"))
}
