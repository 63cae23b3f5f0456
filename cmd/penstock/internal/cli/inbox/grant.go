package inbox

import (
	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
)

var grantableInbox = cli.Grantable{Kind: "inbox", Argument: "CONSUMER", About: about.Inbox, Rights: []cli.Privilege{
	{Flag: "consume", Help: "receive, and nothing else", Grant: cli.Granter.GrantConsumer},
	{Flag: "operate", Help: "operate it: status, held, gaps, release, discard", Grant: cli.Granter.GrantInboxOperator},
}}

func grantCommand(a *cli.App) *cobra.Command {
	cmd := a.GrantCommand(grantableInbox)
	cmd.Short = "Let a role of PostgreSQL use an inbox"
	cmd.Long = `Let a role of PostgreSQL use one inbox, with no more rights than it needs. The role must
exist. Only the owner of the schema can grant.

  --consume  for the consumer: it can receive with this inbox
  --operate  for operators: it can see sizes, gaps, and held messages with their
             payloads, and release or discard them

Both flags grant both. A grant that exists already is not an error. A right ends with
"revoke", "drop owned by ROLE" or with the inbox.`
	cmd.Example = `  penstock inbox grant billing billing_app --consume
  penstock inbox grant billing oncall --operate`
	return cmd
}
