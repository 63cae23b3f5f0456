package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// Granter is a store whose database has roles.
type Granter interface {
	GrantProducer(ctx context.Context, outbox, role string) error
	GrantRelay(ctx context.Context, role string) error
	GrantEnqueuer(ctx context.Context, queue, role string) error
	GrantWorker(ctx context.Context, queue, role string) error
	GrantOperator(ctx context.Context, queue, role string) error
	GrantConsumer(ctx context.Context, consumer, role string) error
	GrantInboxOperator(ctx context.Context, consumer, role string) error
}

// Privilege is something that a role may be allowed to do.
type Privilege struct {
	Flag, Help string
	Grant      func(store Granter, ctx context.Context, name, role string) error
}

// Grantable is a kind of thing with rights.
type Grantable struct {
	Kind, Argument string // queue, QUEUE
	Rights         []Privilege
	About          func(err error, doing, name string) error
}

func (a *App) GrantCommand(to Grantable) *cobra.Command {
	wanted := make([]bool, len(to.Rights))
	cmd := &cobra.Command{
		Use:  "grant " + to.Argument + " ROLE",
		Args: terminal.Exactly(to.Argument, "ROLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			var rights []Privilege
			var flags []string
			for i, r := range to.Rights {
				flags = append(flags, "--"+r.Flag)
				if wanted[i] {
					rights = append(rights, r)
				}
			}
			if len(rights) == 0 {
				last := len(flags) - 1
				return terminal.Misuse(fmt.Errorf("nothing to grant: give %s or %s", strings.Join(flags[:last], ", "), flags[last]))
			}
			g, err := a.OpenGranter(ctx)
			if err != nil {
				return err
			}
			return a.grant(ctx, g, to, rights, args[0], args[1])
		},
	}
	for i, r := range to.Rights {
		cmd.Flags().BoolVar(&wanted[i], r.Flag, false, r.Help)
	}
	return a.WithJSON(cmd, "the rights granted, as one JSON line")
}

// OpenGranter opens a database that has roles.
func (a *App) OpenGranter(ctx context.Context) (Granter, error) {
	store, err := a.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	g, ok := store.(Granter)
	if !ok {
		return nil, terminal.Usage(errors.New("this database has no roles: a user who may write the file may do everything; grants are for PostgreSQL"))
	}
	return g, nil
}

func (a *App) grant(ctx context.Context, g Granter, to Grantable, rights []Privilege, name, role string) error {
	granted := make([]string, len(rights))
	for i, r := range rights {
		if err := r.Grant(g, ctx, name, role); err != nil {
			return to.About(err, "granting --"+r.Flag, name)
		}
		granted[i] = r.Flag
	}
	return a.Tell(map[string]any{strings.ToLower(to.Argument): name, "role": role, "granted": granted},
		"Role %s may %s on %s %s.\n", shell.Visible(role), strings.Join(granted, " and "), to.Kind, shell.Visible(name))
}
