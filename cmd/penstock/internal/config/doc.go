// Package config reads penstock.yaml and turns URLs from the command line into
// stores and sinks.
//
//	bytes → parse (YAML, limits) → decode (types, ${ENV}, file:) → defaults → validate
//
// With the defaults each subscription gets the limits that it does not set from the top level.
// After that, limits are checked against each other.
//
// The file is read strictly. An unknown key or value is an error that names file, line and column,
// shows the line and suggests a correct one. All errors of a file are reported at once.
// Passwords are kept out of every error, log line and printout.
//
// internal/drivers has the lists of databases and brokers; nothing registers itself.
package config
