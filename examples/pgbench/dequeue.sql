-- The next job, gone with the commit.
select * from penstock.dequeue_emails();
