package queue

import (
	"context"
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
	return a.WithJSON(terminal.Verb("workers [QUEUE]", "List workers, idle ones too",
		cli.Opened(a, "queues", func(ctx context.Context, store driver.QueueStore, args []string) error {
			workers, ok := store.(driver.WorkerStore)
			if !ok {
				return terminal.Usage(errors.New("this database keeps no heartbeats of workers: PostgreSQL does"))
			}
			queue := strings.Join(args, "")
			found, err := workers.Workers(ctx, queue, cli.CountedUpTo)
			if err != nil {
				return about.Queue(err, "reading workers", queue)
			}
			if len(found) == 0 && queue != "" {
				if _, err := findQueue(ctx, store, queue, uncounted); err != nil {
					return err
				}
			}
			now, rows := time.Now(), a.Rows(terminal.Cut("QUEUE", 24), terminal.Cut("WORKER", 32), terminal.Left("STATE"), terminal.Right("RUNNING"),
				terminal.Left("LAST CLAIM"), terminal.Right("DONE"), terminal.Right("FAILED"), terminal.Left("SEEN"), terminal.Cut("VERSION", 24))
			for i := range found {
				w := &found[i]
				claimed, running := "never", terminal.Count(int64(w.Running))
				if !w.ClaimedAt.IsZero() {
					claimed = cli.Since(w.ClaimedAt, now)
				}
				if w.Concurrency > 0 {
					running += " of " + terminal.Count(int64(w.Concurrency))
				}
				rows.Add(workerJSON{w, w.State(now)}, w.Queue, w.Name, w.State(now), running, claimed,
					terminal.Count(w.Done), terminal.Count(w.Failed+w.Dead), cli.Since(w.SeenAt, now), w.Version)
			}
			return rows.End("No worker has sent a heartbeat in the last ten minutes.")
		})), "one JSON object per line")
}

type workerJSON struct {
	*admin.Worker
	State string `json:"state"`
}
