package pg

import "strings"

// Engine is a database that speaks PostgreSQL's protocol.
type Engine string

// The engines that are told apart. Citus is an extension: what has it is PostgreSQL otherwise.
const (
	PostgreSQL Engine = "PostgreSQL"
	Yugabyte   Engine = "YugabyteDB"
	Cockroach  Engine = "CockroachDB"
	Citus      Engine = "Citus"
)

// EngineOf tells the engine by what its version() says: "PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64…",
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
