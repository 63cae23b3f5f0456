-- Since when the sink of an adopted table takes nothing, and why, as the holder says with each row that he writes.
alter table _adopt_log
    add column if not exists sink_down  timestamptz, -- null: it takes messages
    add column if not exists sink_error text not null default '';
