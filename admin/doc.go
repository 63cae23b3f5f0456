// Package admin has the types with which operators look after outboxes, queues and inboxes.
// They describe status, dead letters, parked keys, held messages and the history of jobs. They
// also ask for a replay, a retention, or where a message is. A store's methods take and return
// them.
package admin
