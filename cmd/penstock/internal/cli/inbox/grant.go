package inbox

import (
	"github.com/spf13/cobra"

	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
)

var grantableInbox = cli.Grantable{Kind: "inbox", Argument: "CONSUMER", About: about.Inbox, Rights: []cli.Privilege{
	{Flag: "consume", Help: "receive, and nothing else", Grant: cli.Granter.GrantConsumer},
	{Flag: "operate", Help: "look after it: status, held, gaps, release, discard", Grant: cli.Granter.GrantInboxOperator},
}}

func grantCommand(a *cli.App) *cobra.Command {
	cmd := a.GrantCommand(grantableInbox)
	cmd.Short = "Let a role of the database use an inbox"
	cmd.Long = `Let a role of PostgreSQL use one inbox, with no more rights than its part needs. The
role must exist, and it is the owner of the schema who grants.

  --consume  for the consumer: it can receive with this inbox
  --operate  for people: it can see sizes, what is held, with payloads, and gaps,
             and release or discard what is held

Both together grant both. To grant twice changes nothing. A right ends with
"revoke", "drop owned by ROLE" or with the inbox.`
	cmd.Example = `  penstock inbox grant billing billing_app --consume
  penstock inbox grant billing oncall --operate`
	return cmd
}
