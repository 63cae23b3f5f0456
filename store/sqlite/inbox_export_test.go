package sqlite

// InboxStatements are those of inboxes, with values in place of their parameters.
func InboxStatements() map[string]string {
	all := map[string]string{}
	for name, text := range map[string]string{
		"see": inboxSeeSQL, "forget": inboxForgetSQL, "forget_heads": inboxForgetHeadsSQL, "gap": inboxGapSQL, "forget_gaps": inboxForgetGapsSQL, "gaps": inboxGapsSQL,
		"state": inboxStateSQL, "follow": inboxFollowSQL, "due": inboxDueSQL,
	} {
		all[name] = parameter.ReplaceAllString(text, "null")
	}
	return all
}
