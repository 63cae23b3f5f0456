-- Samples of subscriptions, of the last $1 seconds.
select *, null from {schema}._subscription_samples(make_interval(secs => $1))
