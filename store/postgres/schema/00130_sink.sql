-- Since when a subscription's sink takes nothing, and why, as the holder of that epoch said; see _report_sink.
alter table _subscription
    add column if not exists sink_epoch bigint,
    add column if not exists sink_down  timestamptz, -- null: it takes messages
    add column if not exists sink_error text check (octet_length(sink_error) <= 500);
