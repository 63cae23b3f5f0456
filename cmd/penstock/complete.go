package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// namer is a store that lists names without looking at what they name: outboxes, queues,
// inboxes or subscriptions.
type namer interface {
	Names(ctx context.Context, of string) ([]string, error)
}

// completionPatience is how long a shell waits for names. It gets none from a database
// that is slower, down or not to be read, and no error either.
const completionPatience = time.Second

// named is what an argument is a name of, as the verb's usage calls it.
var named = map[string]string{
	"OUTBOX": "outboxes", "QUEUE": "queues", "CONSUMER": "inboxes", "SUBSCRIPTION": "subscriptions",
	"outbox NAME": "outboxes", "queue NAME": "queues", "subscription NAME": "subscriptions",
}

// completeNames has the shell complete names of what is there, wherever a verb takes one.
func (a *app) completeNames(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.completeNames(sub)
	}
	if cmd.Name() == "create" { // what there is cannot be created
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
	if slices.ContainsFunc(kinds, func(of []string) bool { return of != nil }) {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) >= len(kinds) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.names(cmd.Context(), kinds[len(args)])
		}
	}
	for flag, kind := range map[string]string{"outbox": "outboxes", "subscription": "subscriptions"} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
				return a.names(cmd.Context(), []string{kind})
			})
		}
	}
}

func (a *app) names(ctx context.Context, kinds []string) (names []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	store, err := a.openStore(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer store.Close()
	if lister, ok := store.(namer); ok {
		for _, kind := range kinds {
			found, err := lister.Names(ctx, kind)
			if err == nil {
				names = append(names, found...)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
