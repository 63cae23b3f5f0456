// Package adopt makes a table that exists already a subscription: its rows are read as messages
// and, once the sink has confirmed them, deleted, marked or moved. The table itself is never
// altered. Penstock keeps its notes in its own tables. DESIGN.md explains how nothing is lost and
// nothing is walked twice.
package adopt
