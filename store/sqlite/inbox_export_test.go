package sqlite

import "strings"

// InboxStatements are those of inboxes, with values in place of their parameters.
func InboxStatements() map[string]string {
	all := map[string]string{}
	for name := range texts {
		if strings.HasPrefix(name, "inbox_") && name != "inbox_status" && !strings.HasPrefix(name, "inbox_held") && name != "inbox_release" {
			text, _ := rendered(name, inboxArgs)
			all[name] = parameter.ReplaceAllString(text, "null")
		}
	}
	return all
}

var inboxArgs = func() map[string]any {
	all := map[string]any{}
	for _, name := range strings.Fields("consumer inbox ids from most id key next discarded behind previous wait headers payload keep none keys") {
		all[name] = 1
	}
	return all
}()
