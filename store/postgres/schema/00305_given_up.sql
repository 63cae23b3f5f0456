-- An operator may give up the first message of a parked key, see sql/give_up_parked.sql.

alter table _retry
    add column reason text; -- of a message that is given up: n is where it is, its p in _parked. Null: the key is tried at once
