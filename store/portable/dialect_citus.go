package portable

import "github.com/penstock/penstock/internal/pg"

// citus is PostgreSQL with Citus. Its tables stay on the coordinator, where the transactions of producers are. A table cannot be distributed by
// a column that is computed from others, as the bucket is (https://github.com/citusdata/citus/pull/2879 says so in
// DistributionColumnUsesGeneratedStoredColumn). By the key alone a row is not unique. Tables on the coordinator have all of PostgreSQL's
// features, so the usual profile works there as well.
var citus = dialect{engine: pg.Citus, plan: postgresPlan}
