select 0, {created}, t.seq, coalesce(t.id, ''), coalesce(t.key, ''), t.topic, coalesce(t.headers, ''), t.payload, e.attempts, e.since, e.failures, e.died_at, e.hold is not null
{chosen}
