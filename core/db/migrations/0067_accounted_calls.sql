-- Of calls from before: how many of the session are neither held nor ended in its totals (docs/escrow.md). Calls of later
-- are all accounted for, so that a hold that was deleted is missed.
alter table authorised_sessions add column unaccounted_count bigint not null default 0;
