package portable

import (
	"strings"

	"github.com/penstock/penstock/internal/pg"
)

// citus is PostgreSQL with Citus. Its tables stay on the coordinator, where the transactions of producers are. A table cannot be distributed by
// a column that is computed from others, as the bucket is (https://github.com/citusdata/citus/pull/2879 says so in
// DistributionColumnUsesGeneratedStoredColumn). By the key alone a row is not unique. Tables on the coordinator have all of PostgreSQL's
// features, so the usual profile works there as well.
//
// Citus has deletes from several shards of a table take turns, until each is committed, so relays that share a subscription would. Their rows are never
// the same: each has its own buckets, and an operator's call locks the subscription.
var citus = dialect{engine: pg.Citus, plan: postgresPlan, words: map[string]string{
	"by_index": strings.Replace(postgres.words["by_index"], " <> ''", " || set_config('citus.enable_deadlock_prevention', 'off', true) <> ''", 1),
}}
