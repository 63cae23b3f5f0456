-- Creating a queue.

create or replace function create_queue(name text, ordering text default 'fifo', segments int default 3, segment_bytes bigint default 67108864) returns void
language plpgsql set search_path from current set check_function_bodies = off as $$ declare
    seq_name   text := _q(format('_%s.seq', name));
    ring_name  text := _q(format('_%s.ring', name));
    flags_name text := _q(format('_%s.flags', name));
    segment    text;
    made       int;
begin
    if ordering is null or ordering not in ('fifo', 'lifo') then
        raise exception 'the ordering is %, expected fifo or lifo', coalesce(quote_literal(ordering), 'null') using errcode = '22023';
    end if;
    if segments not between 2 and 1000 then
        raise exception 'segments is %, expected 2 to 1000', segments using errcode = '22023';
    end if;
    if segment_bytes < 65536 then
        raise exception 'segment_bytes is %, expected at least 65536', segment_bytes using errcode = '22023';
    end if;
    if exists (select from _queue q where q.name = create_queue.name) then
        raise exception 'the queue % exists already', quote_literal(name) using errcode = '42P07';
    end if;
    if exists (select from _outbox o where o.name = create_queue.name) then
        raise exception 'an outbox has the name %', quote_literal(name) using errcode = '42P07', hint = 'outboxes and queues share their names: choose another';
    end if;
    perform pg_advisory_xact_lock('_queue'::regclass::oid::int, 0); -- migrate, which makes all functions anew, waits
    insert into _queue (name, lifo, segment_bytes) values (name, ordering = 'lifo', segment_bytes) returning id into made;
    insert into _segment (queue, slot, turn) values (made, 0, 0);
    -- Registers, see _make_register. fast_path, next and, in LIFO order, top: where a job can be found
    -- without a scan, see {scan}. next counts where jobs have keys, see {take_keyed}. maintained: when that was done last, in ms. seen: see _maintain_ring. expired: how many
    -- jobs ended because their deadline had passed.
    perform _make_register(_q(format('_%s.%s', name, r)), case r when 'flags' then 65536 else 0 end) -- plain, see _fill
       from unnest('{ring,flags,seen,fast_path,next,maintained,expired}' || case ordering when 'lifo' then '{top}' else '{}'::text[] end) r;
    if ordering = 'lifo' then
        execute format('alter sequence %s increment -1 minvalue -9223372036854775807', _q(format('_%s.next', name)));
    end if;
    execute format($ddl$
        create sequence %2$s;
        create table %1$s (
            xid        xid8        not null default pg_current_xact_id(), -- must come before seq, see _skip_map
            seq        bigint      not null default nextval(%2$L),
            created_at timestamptz not null default clock_timestamp(),
            id         bigint,                                            -- null: the id is seq
            attempt    integer     not null default 0,                    -- how many attempts it has had
            priority   smallint    not null default 0,
            slot       smallint    not null default (pg_sequence_last_value(%3$L) %% 1024)::smallint,
            group_key  text        collate "C" not null default '',
            key        text        collate "C",
            headers    jsonb,
            payload    bytea       not null,
            failures   jsonb
        ) partition by list (slot)$ddl$,
        _q(name), seq_name, ring_name);
    perform _validate_by(name, format('_validate_job(%L)', flags_name));
    for slot in 0 .. segments - 1 loop
        segment := _q(format('_%s.%s', name, slot));
        execute format($ddl$
            create table %1$s partition of %2$s for values in (%3$s) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
            create unique index on %1$s (group_key, priority, seq); create index on %1$s (xid);
            create index on %1$s (key, id, seq) where key is not null; create index on %1$s (key, seq) where key is not null and id is not null;
            create index on %1$s (id) where id is not null -- by id cancel finds jobs
            $ddl$, segment, _q(name), slot);
        execute (select format('alter table %s replica identity using index %I', segment, c.relname) -- see the tables' file, at its end
                   from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = segment::regclass and i.indisunique);
    end loop;
    perform _define(name);
    perform _keep_hashes(_functions_of_queue(name));
    perform _own(name);
end $$;

comment on function create_queue is 'Makes a queue: a ring of segments behind one table, registers, and functions. Errors: 42P07 (duplicate_table) if the name is taken, 23514 for a name that cannot be used, 22023 for an ordering other than fifo and lifo.';
