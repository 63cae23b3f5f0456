package pg

import "strings"

// Engine is a database that speaks PostgreSQL's protocol.
type Engine string

// The engines. Citus is an extension: a server with it is otherwise PostgreSQL.
const (
	PostgreSQL Engine = "PostgreSQL"
	Yugabyte   Engine = "YugabyteDB"
	Cockroach  Engine = "CockroachDB"
	Citus      Engine = "Citus"
)

// EngineOf returns the engine of a version(): "PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64…",
// "CockroachDB CCL v24.3.1 (…)", "PostgreSQL 15.18 …". Citus does not show there.
func EngineOf(version string) Engine {
	switch {
	case strings.HasPrefix(version, "CockroachDB"):
		return Cockroach
	case strings.Contains(version, "-YB-"):
		return Yugabyte
	}
	return PostgreSQL
}
