// Package penstock has the messages, jobs and errors of a transactional outbox and a job queue in
// the user's own database. It does no I/O. Databases are under store/, brokers under sink/. Package
// relay carries messages from one to the other, and package work runs handlers on jobs. Authors of
// a store or a sink need package driver, and operators package admin.
package penstock
