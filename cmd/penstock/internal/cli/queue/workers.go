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
	})
	return a.WithJSON(cmd, "one JSON object per line")
}

type workerJSON struct {
	*admin.Worker
	State string `json:"state"`
}
