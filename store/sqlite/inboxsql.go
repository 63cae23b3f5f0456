package sqlite

import _ "embed"

// Statements about inboxes.
var (
	//go:embed sql/inbox_see.sql
	inboxSeeSQL string
	//go:embed sql/inbox_forget.sql
	inboxForgetSQL string
	//go:embed sql/inbox_forget_heads.sql
	inboxForgetHeadsSQL string
	//go:embed sql/inbox_standing.sql
	inboxStandingSQL string
	//go:embed sql/inbox_follow.sql
	inboxFollowSQL string
	//go:embed sql/inbox_due.sql
	inboxDueSQL string
)
