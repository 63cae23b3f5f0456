package storetest

import "github.com/penstock/penstock/internal/test/suite"

// Cases are those that a condition can change.
type Cases = suite.Cases

// Buffered transactions write later. This changes when a message is visible, in which order, its contents,
// and refusals.
var Buffered = Cases{"Visibility", "Order/WithinOneTransaction", "Order/EarlyIdentifierCommitsLast", "Content", "Input/BadFieldsAreNamed", "Input/NoSuchOutbox", "Model/RandomWalk/1"}

// SmallPieces of storage are full soon: all that frees them, or is kept when they are, and what lies in several.
var SmallPieces = Cases{"Reclaim", "Retention", "Visibility/ManyLateCommits", "Order/RowLockedWriters/page=5", "Paging/EveryPageByAnotherReader",
	"ParkedLoad/SurvivesReclaim", "ParkedLoad/BetweenHousekeeping", "ParkedLoad/FreesItsSpace", "DeadLetter/SurviveReclaim", "Part/ReclaimKeepsTheRest", "Subscription/EphemeralHoldsNothingBack",
	"DropSubscription/LetsReclaimGoOn", "Replay/BySeq", "Replay/OfABacklogLargerThanABatch", "Restore", "Model"}

// Isolated transactions have one snapshot each, or fail because of other transactions: the cases in which others are open
// at the same time.
var Isolated = Cases{"Visibility/LateCommitIsDelivered", "Visibility/LateCommitDuringPaging", "Visibility/ManyLateCommits", "Visibility/UnrelatedWriterDelaysNothing",
	"Lease/FirstSubscribersRace", "Lease/SettleRacesTakeover", "Settle/SettleWhileFetching", "ParkedSettle/CommittedLateBelowTheHead", "Hold/OfOneThatCommittedLate",
	"Subscription/FromNowWithOpenTransaction", "Reclaim/LosesNoOpenTransaction", "Reclaim/ByTwoProcessesAtOnce", "Part/LateCommit", "Once/FromSeveralAtOnce",
	"Outbox/MigrateFromSeveralAtOnce", "Outbox/CreateFromSeveralAtOnce", "Model/RandomWalk/1"}

// Pooled connections give each transaction another session, and may be lost: locks, long calls, and interruptions.
var Pooled = Cases{"Visibility/LateCommitIsDelivered", "Lease/OneHolderAtATime", "Lease/SettleRacesTakeover", "Settle/MixedVerdictsApplyTogether", "Settle/SettleWhileFetching",
	"Once/FromSeveralAtOnce", "Outbox/MigrateFromSeveralAtOnce", "Outbox/DropUnderAReader", "Content/PayloadBytes", "Content/Headers", "Replay/BySeq", "Reclaim/ByTwoProcessesAtOnce", "Cancel", "Outage"}

// A RestlessClock of the database jumps: order and visibility, which it has no part in.
var RestlessClock = Cases{"Visibility/CommittedIsDelivered", "Visibility/LateCommitIsDelivered", "Visibility/ManyLateCommits", "Order/EarlyIdentifierCommitsLast", "Order/RowLockedWriters/page=5",
	"Settle/SettleWhileFetching", "Reclaim/LosesNothing", "Reclaim/LosesNoOpenTransaction"}

// Engine lists the cases that another engine of the same database can change: locks, the view of a snapshot, and freed space.
var Engine = Cases{"Visibility", "Order", "Lease/FirstSubscribersRace", "Lease/SettleRacesTakeover", "Lease/ContendersNeverBothSettle", "Settle/SettleWhileFetching",
	"ParkedSettle/CommittedLateBelowTheHead", "Hold/OfOneThatCommittedLate", "Part/LateCommit", "DeadLetterQuery/RetryByQuery", "Subscription/FromNowWithOpenTransaction", "Reclaim", "Retention/BytesBoundTheSpace",
	"Restore", "Content/PayloadBytes", "Content/KeyAndTopic", "Content/Headers", "Once/OddIDs", "Once/FromSeveralAtOnce", "Outbox/MigrateFromSeveralAtOnce", "Outbox/CreateFromSeveralAtOnce", "Outbox/OddNamesStayApart",
	"Replay/BySeq", "Model/RandomWalk/1"}

// ByAClient of another language messages are published and no more: that they are seen, what of them, and what is refused.
var ByAClient = Cases{"Visibility/CommittedIsDelivered", "Content/PayloadBytes", "Content/KeyAndTopic", "Content/Headers", "Content/GivenID", "Input/BadFieldsAreNamed", "Input/NoSuchOutbox"}
