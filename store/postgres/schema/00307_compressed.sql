-- The jobs of a claim of many are compressed where the server has lz4. With pglz that takes longer than to write them.

do $$ begin
    alter table _lease_0 alter column jobs set compression lz4;
    alter table _lease_1 alter column jobs set compression lz4;
    alter table _lease alter column jobs set storage extended;
exception when feature_not_supported then
    null; -- they stay as they are
end $$;
