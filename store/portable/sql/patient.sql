-- Tables are made and dropped over another connection, while this transaction waits.
select set_config('idle_in_transaction_session_timeout', '0', true)
