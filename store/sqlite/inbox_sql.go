package sqlite

import _ "embed"

// Statements about inboxes.
var (
	//go:embed sql/inbox_see.sql
	inboxSeeSQL string
	//go:embed sql/inbox_forget.sql
	inboxForgetSQL string
	//go:embed sql/inbox_gap.sql
	inboxGapSQL string
	//go:embed sql/inbox_forget_gaps.sql
	inboxForgetGapsSQL string
	//go:embed sql/inbox_forget_heads.sql
	inboxForgetHeadsSQL string
	//go:embed sql/inbox_state.sql
	inboxStateSQL string
	//go:embed sql/inbox_follow.sql
	inboxFollowSQL string
	//go:embed sql/inbox_due.sql
	inboxDueSQL string

	//go:embed sql/inbox_status.sql
	inboxStatusSQL string
	//go:embed sql/inbox_held.sql
	inboxHeldSQL string
	//go:embed sql/inbox_release.sql
	inboxReleaseSQL string
	//go:embed sql/inbox_gaps.sql
	inboxGapsSQL string
)
