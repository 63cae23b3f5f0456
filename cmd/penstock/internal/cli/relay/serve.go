package relay

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/run"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/sink/webhook"
)

// ServeCommand takes messages over HTTP.
func ServeCommand(a *cli.App) *cobra.Command {
	var (
		listen, inbox string
		outboxes      []string
		metrics       cli.MetricsFlags
	)
	cmd := terminal.Verb("serve", "Accept messages over HTTP", func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		cfg, err := a.LoadConfig()
		if err != nil {
			return err
		}
		if cfg == nil {
			cfg = &config.Config{}
		}
		cfg.Subscriptions, cfg.Workers = nil, nil
		if cfg.Serve == nil {
			cfg.Serve = &config.Serve{}
		}
		if listen != "" {
			cfg.Serve.Listen = listen
		}
		token := webhook.Secret(a.Getenv("PENSTOCK_SERVE_TOKEN"))
		if len(outboxes) > 0 {
			given := cfg.Serve.Outboxes
			cfg.Serve.Outboxes = nil
			for _, name := range outboxes {
				one := config.ServeOutbox{Name: name, Token: token}
				if i := slices.IndexFunc(given, func(o config.ServeOutbox) bool { return o.Name == name }); i >= 0 && token == "" {
					one = given[i]
				}
				if inbox != "" {
					one.Inbox = inbox
				}
				cfg.Serve.Outboxes = append(cfg.Serve.Outboxes, one)
			}
		} else if inbox != "" || token != "" {
			return terminal.Usage(errors.New("--inbox and PENSTOCK_SERVE_TOKEN are for an --outbox: name it"))
		}
		if cfg.Serve.Listen == "" {
			return terminal.Usage(errors.New("--listen is missing: give an address such as 127.0.0.1:8080, or serve: {listen: …} in the configuration"))
		}
		cfg.SetDefaults()
		if err := errors.Join(metrics.Set(&cfg.Metrics), terminal.Usage(cfg.Serve.Validate())); err != nil {
			return err
		}
		store, err := a.OpenStore(ctx)
		if err != nil {
			return err
		}
		return a.Run(ctx, cfg, run.Options{Store: store, Log: a.Logger()})
	})
	cmd.Annotations = terminal.OwnSignals
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "", "`address` to listen at, such as 127.0.0.1:8080")
	flags.StringArrayVar(&outboxes, "outbox", nil, "`outbox` to accept messages for; may be repeated (default every one)")
	flags.StringVar(&inbox, "inbox", "", "`inbox` by which messages that were published before are skipped")
	metrics.Add(flags, "")
	return cmd
}
