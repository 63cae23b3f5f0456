-- Who may call what. Roles get what belongs to one outbox, queue or inbox from the grant_
-- functions. Everybody may call those that take a name and only call what belongs to it:
-- they do no more than the caller may.

-- +goose Up

-- +goose StatementBegin
do $$
declare
    everybodys constant text[] := '{
        dequeue, enqueue, enqueue_many, claim, ack, extend, release, retry, bury, cancel, maintain_queue,
        pause_queue, resume_queue, retry_dead_jobs, discard_dead_jobs, queue_status,
        inbox, inbox_many, inbox_in_order, inbox_due, inbox_held, inbox_gaps, inbox_release, inbox_discard, maintain_inbox,
        _q, _read_committed, _refuse_headers, _admit_message, _lost}'; -- these only look
    made regprocedure;
begin
    execute format('revoke execute on all functions in schema %I from public', current_schema());
    for made in select p.oid from pg_proc p
                 where p.pronamespace = quote_ident(current_schema())::regnamespace and p.proname = any (everybodys) loop
        execute format('grant execute on function %s to public', made);
    end loop;
end $$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';
