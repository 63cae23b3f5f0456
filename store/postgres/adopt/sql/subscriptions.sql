-- Every subscription.
select id, name, source from {schema}._adopt_subscription order by name collate "C"
