package queue

import (
	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
)

var grantableQueue = cli.Grantable{Kind: "queue", Argument: "QUEUE", About: about.Queue, Rights: []cli.Privilege{
	{Flag: "enqueue", Help: "enqueue jobs, and nothing else", Grant: cli.Granter.GrantEnqueuer},
	{Flag: "work", Help: "claim jobs and settle them, as a worker does", Grant: cli.Granter.GrantWorker},
	{Flag: "operate", Help: "operate it: status, dead letters, pause, cancel", Grant: cli.Granter.GrantOperator},
}}

func grantCommand(a *cli.App) *cobra.Command {
	cmd := a.GrantCommand(grantableQueue)
	cmd.Short = "Let a role of PostgreSQL use a queue"
	cmd.Long = `Let a role of PostgreSQL use one queue, with no more rights than it needs. The role must
exist. Only the owner of the schema can grant.

  --enqueue  for applications: it can write jobs, by penstock.enqueue, by a plain
             INSERT or with penstock enqueue, and cannot read any
  --work     for workers: it can claim jobs and settle them, and cannot read jobs that
             it has not claimed
  --operate  for operators: it can see the queue's status, list, retry and discard
             dead letters, pause, resume and cancel. It can neither enqueue nor claim

Several flags grant each of them. A grant that exists already is not an error. A right
ends with "revoke", "drop owned by ROLE" or with the queue.

penstock outbox grant is for relays and for applications that publish.`
	cmd.Example = `  penstock queue grant emails webshop --enqueue
  penstock queue grant emails mail_worker --work
  penstock queue grant emails oncall --operate`
	return cmd
}
