-- Roles that may relay are those with the right to insert into _cursor, so that a right that was revoked stays revoked.
drop table _relay_role;
