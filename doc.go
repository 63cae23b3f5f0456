// Package penstock is a transactional outbox and a job queue in the user's own database: its
// messages, jobs and errors. It does no I/O. Databases are under store/, brokers under sink/;
// relay/ carries messages from one to the other, and work/ runs handlers on jobs. Package driver is
// for who writes a store or a sink, package admin for who looks after them.
package penstock
