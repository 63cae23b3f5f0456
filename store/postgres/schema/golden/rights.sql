-- What each grant gives to a role, besides the functions that everybody may execute: those of which shared.sql says so, and
-- internal ones with the caller's rights. As it stands in the database, with the comments of store/postgres/schema; TestGolden
-- compares it, and -update writes it.

-- grant_producer('orders', role)
grant usage on schema penstock to role;
grant insert (id, key, topic, headers, payload) on table penstock.orders to role;
grant usage on sequence penstock."_orders.seq" to role;
grant select on sequence penstock."_orders.slot" to role;
grant execute on function penstock.publish(text,jsonb,text,text,jsonb,text) to role;
grant execute on function penstock.publish(text,text,text,text,jsonb,text) to role;
grant execute on function penstock.publish_bytes(text,bytea,text,text,jsonb,text) to role;

-- grant_relay(role)
grant usage on schema penstock to role;
grant insert, select on table penstock._cursor to role;
grant delete, insert, select, update on table penstock._dead_letter to role;
grant select on table penstock._migration to role;
grant select on table penstock._outbox to role;
grant insert, select on table penstock._parked to role;
grant insert, select on table penstock._parked_key to role;
grant delete, insert, select, update on table penstock._replay to role;
grant delete, insert, select, update on table penstock._retry to role;
grant insert, select on table penstock._subscription to role;
grant select on table penstock.orders to role;
grant select on sequence penstock."_orders.seq" to role;
grant select on sequence penstock."_orders.slot" to role;
grant usage on sequence penstock._cursor_n to role;
grant select on sequence penstock._cursor_slot to role;
grant select, usage on sequence penstock._parked_key_n to role;
grant select on sequence penstock._parked_key_slot to role;
grant usage on sequence penstock._parked_p to role;
grant select on sequence penstock._parked_slot to role;
grant execute on function penstock._behind(text,integer) to role;
grant execute on function penstock._holders(text,integer) to role;
grant execute on function penstock._reclaim(text,integer) to role;
grant execute on function penstock._reclaim_cursor() to role;
grant execute on function penstock._reclaim_parked(bigint) to role;
grant execute on function penstock._reclaim_parked_keys(bigint) to role;
grant execute on function penstock._report_sink(bigint,bigint,timestamp with time zone,text) to role;
grant execute on function penstock._rotate(text,boolean) to role;
grant execute on function penstock._subscription_samples(interval) to role;
grant execute on function penstock._take_samples() to role;

-- grant_adopt(role)
grant usage on schema penstock to role;
grant delete, insert, select, update on table penstock._adopt_log to role;
grant delete, insert, select, update on table penstock._adopt_row to role;
grant delete, insert, select, update on table penstock._adopt_subscription to role;
grant select on table penstock._migration to role;
grant usage on sequence penstock._adopt_n to role;

-- grant_enqueuer('emails', role)
grant usage on schema penstock to role;
grant insert (priority, group_key, key, headers, payload) on table penstock.emails to role;
grant select on sequence penstock."_emails.flags" to role;
grant select on sequence penstock."_emails.ring" to role;
grant usage on sequence penstock."_emails.seq" to role;
grant execute on function penstock."_emails.barrier"(bigint,bigint) to role;
grant execute on function penstock."_emails.enqueue"(bytea,text,text,integer,timestamp with time zone,text,jsonb) to role;
grant execute on function penstock."_emails.enqueue_many"(bytea[],text[],text[],integer[],timestamp with time zone[],text[],jsonb[]) to role;
grant execute on function penstock."_emails.find"(bigint) to role;
grant execute on function penstock."_emails.flags"(bigint) to role;

-- grant_worker('emails', role)
grant usage on schema penstock to role;
grant select on sequence penstock."_emails.maintained" to role;
grant execute on function penstock."_emails.ack"(bigint[]) to role;
grant execute on function penstock."_emails.claim"(integer,interval,text,text,bigint[]) to role;
grant execute on function penstock."_emails.extend"(bigint[],interval) to role;
grant execute on function penstock."_emails.fail"(bigint,interval,text,boolean) to role;
grant execute on function penstock."_emails.find"(bigint) to role;
grant execute on function penstock."_emails.hold_group"(text,interval,text) to role;
grant execute on function penstock."_emails.maintain"() to role;
grant execute on function penstock."_emails.ready"(text[],text,integer,boolean) to role;
grant execute on function penstock."_emails.release"(bigint[],interval) to role;
grant execute on function penstock."_emails.report"(bigint,jsonb) to role;
grant execute on function penstock."_emails.take"(integer,text,boolean,boolean,boolean) to role;
grant execute on function penstock.dequeue_emails() to role;

-- grant_operator('emails', role)
grant usage on schema penstock to role;
grant select on table penstock._dead_job to role;
grant select on table penstock._migration to role;
grant select on table penstock._queue to role;
grant select on table penstock._sample to role;
grant select on sequence penstock."_emails.ring" to role;
grant execute on function penstock."_emails.cancel"(bigint[]) to role;
grant execute on function penstock."_emails.count"(integer) to role;
grant execute on function penstock."_emails.count_groups"(text,integer) to role;
grant execute on function penstock."_emails.discard_dead"(bigint[]) to role;
grant execute on function penstock."_emails.done_jobs"(integer,text,bigint[]) to role;
grant execute on function penstock."_emails.find"(bigint) to role;
grant execute on function penstock."_emails.group_limits"(text[],text,integer) to role;
grant execute on function penstock."_emails.hold_group"(text,interval,text) to role;
grant execute on function penstock."_emails.pause"(boolean) to role;
grant execute on function penstock."_emails.retry_dead"(bigint[]) to role;
grant execute on function penstock."_emails.set_group"(text,integer,integer,interval,integer,integer) to role;

-- grant_consumer('billing', role)
grant usage on schema penstock to role;
grant execute on function penstock."__inbox.1.due"(integer,text[]) to role;
grant execute on function penstock."__inbox.1.first"(text) to role;
grant execute on function penstock."__inbox.1.first_of"(text[]) to role;
grant execute on function penstock."__inbox.1.in_order"(text,text,text,jsonb,bytea,interval) to role;
grant execute on function penstock."__inbox.1.maintain"(boolean) to role;

-- grant_inbox_operator('billing', role)
grant usage on schema penstock to role;
grant select on table penstock._inbox to role;
grant select on table penstock._migration to role;
grant execute on function penstock."__inbox.1.discard"(text[]) to role;
grant execute on function penstock."__inbox.1.let_go"(text,text,text) to role;
grant execute on function penstock."__inbox.1.list_gaps"(integer) to role;
grant execute on function penstock."__inbox.1.list_held"(text,text,text,integer) to role;
grant execute on function penstock."__inbox.1.maintain"(boolean) to role;
grant execute on function penstock."__inbox.1.status"() to role;
grant execute on function penstock.inboxes() to role;
