package queuetest

import "github.com/penstock/penstock/internal/test/suite"

// Cases are those that a condition can change.
type Cases = suite.Cases

// Buffered transactions write later. This changes when a job is visible, in which order, its contents, duplicates,
// and refusals.
var Buffered = Cases{"Tx", "Order/FIFO", "Order/LIFO", "Key/OneAtATimeInOrder", "Dedup", "Delay/NotBeforeItsTime", "Content", "Kind/EveryOptionCarriesIt", "Options/Carried", "Input/BadJobs", "Input/NoSuchQueue", "Model/RandomWalk"}

// SmallPieces of storage are full soon: all that frees them, or is kept when they are, and what lies in several.
var SmallPieces = Cases{"Tx/ManyLateCommits", "Order/FIFO", "Order/LIFO", "Key/ManyInTheWay", "Key/ManyInTheWayLIFO", "Key/ManyRetriedInTheWay", "Dedup/WindowEnds", "History",
	"Groups/ManyReadyOnes", "Queue/DropForgetsEverything", "Reclaim", "Load/ManyWorkers", "Load/ManyWorkersLIFO", "Model"}

// Isolated transactions have one snapshot each, or fail because of other transactions: the cases in which others are open
// at the same time.
var Isolated = Cases{"Tx/LateCommit", "Tx/LateCommitLIFO", "Tx/ManyLateCommits", "Tx/LateCommitOfAKey", "Tx/OpenWriterDelaysNothing", "Key/OneAtATimeInOrder", "Lease/LostLeaseSettlesNothing",
	"Dedup/SecondIsTheFirst", "Dedup/Race", "Settings/MaxRunning", "Settings/MaxRunningAtOnce", "Schedule/FiresOnceInAllProcesses", "Queue/FirstMakersRace", "Groups/LateCommit",
	"Load/ManyWorkers", "Model/RandomWalk"}

// Pooled connections give each transaction another session, and may be lost: locks, long calls, and interruptions.
var Pooled = Cases{"Claim/EnqueueClaimAck", "Claim/AcrossProcesses", "Tx/LateCommit", "Lease/LostLeaseSettlesNothing", "Dedup/Race", "Cancel", "Content/BytesSurvive", "Schedule/FiresOnceInAllProcesses",
	"Settings/MaxRunningAtOnce", "Queue/FirstMakersRace", "Reclaim/KeepsWhatIsLeft", "Work/TwoProcesses"}

// A RestlessClock of the database jumps: order and visibility, which it has no part in.
var RestlessClock = Cases{"Tx/CommitShows", "Tx/LateCommit", "Tx/ManyLateCommits", "Order", "Key/OneAtATimeInOrder", "Key/OneAtATimeInOrderLIFO", "Key/ManyInTheWay", "Reclaim/KeepsWhatIsLeft"}

// Engine is what another engine of the same database can change: locks, what a snapshot sees, order of keys, and what is freed.
var Engine = Cases{"Claim/AcrossProcesses", "Tx", "Order/FIFO", "Order/LIFO", "Order/PrioritiesFirst", "Key/OneAtATimeInOrder", "Key/ManyInTheWay", "Lease/LostLeaseSettlesNothing", "Dedup/SecondIsTheFirst", "Dedup/Race", "Dedup/Rollback",
	"Content/BytesSurvive", "Content/TextSurvives", "Settings/MaxRunningAtOnce", "Schedule/FiresOnceInAllProcesses", "Queue/FirstMakersRace", "Groups/LateCommit", "Groups/ReadyOnes",
	"Reclaim/KeepsWhatIsLeft", "Load/ManyWorkers", "Model/RandomWalk"}

// ByAClient of another language: its own statements to the database, each argument and answer once, and a worker's ways; not what the
// database then does alone. That its transaction is the caller's, and keys, are among the tests of clients/conformance.
var ByAClient = Cases{"Claim/EnqueueClaimAck", "Claim/GroupsAreLinesOfTheirOwn", "Claim/ReleaseForAWhile", "Lease/LostLeaseSettlesNothing", "Lease/ExtendKeepsTheLease",
	"Retry/AfterAPause", "Retry/LastAttemptIsADeadLetter", "Delay/NotBeforeItsTime", "Dedup/Told", "Input/BadJobs", "Input/NoSuchQueue", "Content/BytesSurvive", "Content/TextSurvives", "Kind/EveryOptionCarriesIt",
	"Options/Carried", "Unique/Debounce", "Barrier/OpensOnce", "Barrier/DeadCancels", "Barrier/Unique", "Barrier/Several", "Barrier/Refused",
	"Barrier/MessageOpensOnce", "Barrier/MessageDeadCancels", "Barrier/MessageRefused",
	"Report/StepsAddUp", "Report/Refused", "Report/LateOneIsLost", "Work/CancelledJob", "Work/Snooze", "Work/Outcomes"}
