-- A queue has one function for its operators; define.sql makes the policy that goes by it.
drop policy if exists operator on _dead_job;
