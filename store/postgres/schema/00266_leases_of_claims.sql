-- When the leases end of the claim that wrote the row, see _maintain_at_commit.
alter table _maintenance add until timestamptz;
