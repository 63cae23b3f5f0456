// Command penstock relays outboxes to brokers, works on queues and looks after both.
//
// A verb is in the files that begin with its name: dead.go has penstock dead and what the
// verbs under it share, deadlist.go penstock dead list. The others are shared:
//
//	main.go root.go        the process; the tree of verbs, its global flags, and the database
//	open.go                opening that database
//	list.go grant.go       verbs that outboxes, queues and inboxes have alike
//	filter.go              flags that choose messages: relay and tail
//	lines.go               JSON lines from stdin: publish and enqueue
//	exit.go dberror.go     exit codes, and the next step for an error
//	complete.go            names for the shell
//	suggest.go             the database that a suggested command means
//	signals.go stdin.go    what Ctrl-C ends
//	confirm.go             asking before something is lost
//	terminal.go            whether there is somebody to ask; progress
//	table.go lettertext.go what people read: lists, and one dead letter or held message
//	text.go when.go        names, numbers and times in it
//	scrub.go               no password on stderr
package main
