package queue

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
)

func workersCommand(a *cli.App) *cobra.Command {
	cmd := terminal.Verb("workers [QUEUE]", "List workers, idle ones too", func(cmd *cobra.Command, args []string) error {
		open, err := cli.OpenWith[driver.QueueStore](cmd.Context(), a, "queues")
		if err != nil {
			return err
		}
		workers, ok := open.(driver.WorkerStore)
		if !ok {
			return terminal.Usage(errors.New("this database keeps no heartbeats of workers: PostgreSQL does"))
		}
		queue := strings.Join(args, "")
		found, err := workers.Workers(cmd.Context(), queue, cli.CountedUpTo)
		if err != nil {
			return about.Queue(err, "reading workers", queue)
		}
		if len(found) == 0 && queue != "" {
			if _, err := findQueue(cmd.Context(), open, queue, uncounted); err != nil {
				return err
			}
		}
		now := time.Now()
		return cli.List(a, found, func(w *admin.Worker) any {
			return struct {
				*admin.Worker
				State string `json:"state"`
			}{w, w.State(now)}
		}, "No worker has sent a heartbeat in the last ten minutes.",
			[]terminal.Column{terminal.Cut("QUEUE", 24), terminal.Cut("WORKER", 32), terminal.Left("STATE"), terminal.Right("RUNNING"), terminal.Left("LAST CLAIM"),
				terminal.Right("DONE"), terminal.Right("FAILED"), terminal.Left("SEEN"), terminal.Cut("VERSION", 24)},
			func(w *admin.Worker) []string {
				claimed := "never"
				if !w.ClaimedAt.IsZero() {
					claimed = cli.Since(w.ClaimedAt, now)
				}
				running := terminal.Count(int64(w.Running))
				if w.Concurrency > 0 {
					running += " of " + terminal.Count(int64(w.Concurrency))
				}
				return []string{w.Queue, w.Name, w.State(now), running, claimed, terminal.Count(w.Done), terminal.Count(w.Failed + w.Dead), cli.Since(w.SeenAt, now), w.Version}
			})
	})
	return a.WithJSON(cmd, "one JSON object per line")
}
