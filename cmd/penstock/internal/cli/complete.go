package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/driver"
)

// completionPatience is how long a shell waits for names. If a database is slower, down or
// unreadable, it gets no names and no error.
const completionPatience = time.Second

// named has the things that arguments name, as the verb's usage calls it.
var named = map[string]string{
	"OUTBOX": "outboxes", "QUEUE": "queues", "CONSUMER": "inboxes", "SUBSCRIPTION": "adopted", "ROLE": "roles",
	"outbox NAME": "outboxes", "queue NAME": "queues", "subscription NAME": "subscriptions",
}

// CompleteNames makes the shell complete existing names in arguments of verbs.
func (a *App) CompleteNames(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.CompleteNames(sub)
	}
	if cmd.Name() == "create" { // an existing thing cannot be created
		cmd.ValidArgsFunction = cobra.NoFileCompletions
		return
	}
	var kinds [][]string // of each argument
	for _, placeholder := range strings.Fields(cmd.Use)[1:] {
		var of []string
		for _, what := range strings.Split(strings.Trim(placeholder, "[]"), "|") {
			if what == "NAME" && cmd.Parent() != nil {
				what = cmd.Parent().Name() + " " + what
			}
			if kind := named[what]; kind != "" {
				of = append(of, kind)
			}
		}
		kinds = append(kinds, of)
	}
	if cmd.Use == "drop [OUTBOX] NAME" { // subscriptions that adopt a table have no outbox
		kinds[0] = append(kinds[0], "adopted")
	}
	if slices.ContainsFunc(kinds, func(of []string) bool { return of != nil }) {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			of := kinds
			if cmd.Name() == "grant" && cmd.Flags().Changed("relay") { // of every outbox
				of = [][]string{{"roles"}}
			}
			if len(args) >= len(of) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.names(cmd.Context(), of[len(args)])
		}
	}
	if cmd.Flags().Lookup("group") != nil {
		_ = cmd.RegisterFlagCompletionFunc("group", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return a.groups(cmd.Context(), args)
		})
	}
	for flag, kind := range map[string]string{"outbox": "outboxes", "subscription": "subscriptions"} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
				return a.names(cmd.Context(), []string{kind})
			})
		}
	}
}

func (a *App) names(ctx context.Context, kinds []string) ([]string, cobra.ShellCompDirective) {
	return a.lookUp(ctx, func(ctx context.Context, store driver.Database) (names []string) {
		for _, kind := range kinds {
			found, err := store.Names(ctx, kind)
			if err == nil {
				names = append(names, found...)
			}
		}
		return names
	})
}

// groups are those of the queue that a verb's arguments begin with.
func (a *App) groups(ctx context.Context, args []string) ([]string, cobra.ShellCompDirective) {
	return a.lookUp(ctx, func(ctx context.Context, store driver.Database) (names []string) {
		if len(args) > 0 {
			found, _ := store.QueueGroups(ctx, args[0], "", GroupsAtOnce)
			for _, g := range found {
				names = append(names, g.Group)
			}
		}
		return slices.DeleteFunc(names, func(name string) bool { return name == "" })
	})
}

// lookUp asks the database, if it answers soon enough.
func (a *App) lookUp(ctx context.Context, ask func(context.Context, driver.Database) []string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	store, err := a.OpenStore(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := ask(ctx, store)
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
