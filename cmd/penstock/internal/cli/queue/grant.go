package queue

import (
	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
)

var grantableQueue = cli.Grantable{Kind: "queue", Argument: "QUEUE", About: about.Queue, Rights: []cli.Privilege{
	{Flag: "enqueue", Help: "enqueue jobs, and nothing else", Grant: cli.Granter.GrantEnqueuer},
	{Flag: "work", Help: "claim jobs and settle them, as a worker does", Grant: cli.Granter.GrantWorker},
	{Flag: "operate", Help: "look after it: status, dead letters, pause, cancel", Grant: cli.Granter.GrantOperator},
}}

func grantCommand(a *cli.App) *cobra.Command {
	cmd := a.GrantCommand(grantableQueue)
	cmd.Short = "Let a role of the database use a queue"
	cmd.Long = `Let a role of PostgreSQL use one queue, with no more rights than its part needs. The
role must exist, and it is the owner of the schema who grants.

  --enqueue  for applications: it can write jobs, by penstock.enqueue, by a plain
             INSERT or with penstock enqueue, and cannot read any
  --work     for workers: it can claim jobs and settle them, and cannot read what it
             has not claimed
  --operate  for people: it can see the queue's status, list, retry and discard dead
             letters, pause, resume and cancel, and can neither enqueue nor claim

Several together grant each. To grant twice changes nothing. A right ends with
"revoke", "drop owned by ROLE" or with the queue.

Relays and applications that publish have theirs by penstock outbox grant.`
	cmd.Example = `  penstock queue grant mails webshop --enqueue
  penstock queue grant mails mail_worker --work
  penstock queue grant mails oncall --operate`
	return cmd
}
