// Package testserver gives tests real servers: those named in the environment,
// or private ones that it starts from the programs installed on the machine.
//
//	PENSTOCK_TEST_POSTGRES      a postgres:// URL of a role that may create databases and roles
//	PENSTOCK_TEST_RABBITMQ      an amqp:// URL
//	PENSTOCK_TEST_MARIADB       a mysql:// URL of a user that may create databases
//	PENSTOCK_TEST_DATA          the folder for the data of private servers, instead of the system's temporary one
//	PENSTOCK_TEST_PG_BIN        the folder that holds initdb and postgres
//	PENSTOCK_TEST_RABBITMQ_BIN  the folder that holds rabbitmq-server
//	PENSTOCK_TEST_MARIADB_BIN   the folder that holds mariadbd, or MySQL's mysqld
//	PENSTOCK_TEST_KAFKA_JARS    the folder of Apache Kafka's jars; without it there is no Kafka
//	CC                          the C compiler, for a clock of PostgreSQL's that a test sets
//	PENSTOCK_TEST_PGBOUNCER     the program pgbouncer
//
// PostgresURL and RabbitMQURL are for tests that only use a server; it is
// shared, so they bring their own names (see Database). StartPostgres and
// StartRabbitMQ start one for tests that stop, kill or configure it. Around a
// PostgreSQL of the test's own there may be standbys (standby.go), a pooler
// (pgbouncer.go), and a clock that the test sets (clock.go). Chromium is started by the tests of cmd/penstock/internal/console.
//
// A private server keeps its data, log, ports and cookies to itself: a separate folder, free ports
// on 127.0.0.1, and nothing of /etc or of the user's environment. It ends with the process that
// started it, however that process ends (see guard.go).
//
// Where a server can neither be found nor started the test is skipped with the
// next step, except with CI=true, where it fails.
//
// The package works on Linux and other Unix systems.
package testserver
