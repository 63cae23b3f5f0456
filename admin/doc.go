// Package admin has what people see who look after outboxes, queues and inboxes, and what they
// decide about: their status, dead letters, parked keys, held messages, where a message is, the
// history of jobs, replays and retention. A store's methods take and return these types.
package admin
