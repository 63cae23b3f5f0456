-- What docs/migrate/jobrunr.md touches of JobRunr 8.7.1: columns and types as its migrations make them, and the members of a job that its JSON has.
create table jobrunr_jobs (
    id             nchar(36) primary key,
    version        int not null,
    jobAsJson      text not null,
    jobSignature   varchar(512) not null,
    state          varchar(36) not null,
    createdAt      timestamp not null,
    updatedAt      timestamp not null,
    scheduledAt    timestamp,
    recurringJobId varchar(128)
);
insert into jobrunr_jobs
select md5(n::text)::uuid::text, 1, jsonb_build_object('jobDetails', jsonb_build_object('className', 'shop.' || handler, 'methodName', 'run', 'jobParameters', jsonb_build_array(
           jsonb_build_object('className', 'shop.SendEmail', 'actualClassName', 'shop.SendEmail', 'object', jsonb_build_object('n', n)))),
           'jobHistory', (select coalesce(jsonb_agg(jsonb_build_object('state', s)), '[]') from unnest(history) s)),
       'shop.' || handler || '.run(shop.SendEmail)', state, at, at, case state when 'SCHEDULED' then at + interval '1 day' end
  from (values (1, 'SendEmailHandler', 'ENQUEUED', '{ENQUEUED}'::text[]),
               (2, 'SendEmailHandler', 'SCHEDULED', '{SCHEDULED}'),
               (3, 'SendEmailHandler', 'SCHEDULED', '{ENQUEUED,PROCESSING,FAILED,SCHEDULED,ENQUEUED,PROCESSING,FAILED,SCHEDULED}'),
               (4, 'SendEmailHandler', 'SUCCEEDED', '{ENQUEUED,PROCESSING,SUCCEEDED}'),
               (5, 'SendEmailHandler', 'FAILED', '{ENQUEUED,PROCESSING,FAILED}'),
               (6, 'OtherHandler', 'ENQUEUED', '{ENQUEUED}')) as job(n, handler, state, history), (select now() at time zone 'UTC') as t(at);
