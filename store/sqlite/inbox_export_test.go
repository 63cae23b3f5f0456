package sqlite

import "strings"

// InboxStatements are those of inboxes, with values in place of their parameters.
func InboxStatements() map[string]string {
	all := map[string]string{}
	for name := range texts {
		if strings.HasPrefix(name, "inbox_") && name != "inbox_status" && !strings.HasPrefix(name, "inbox_held") && name != "inbox_release" {
			all[name] = unbound("", statement(name))
		}
	}
	return all
}
