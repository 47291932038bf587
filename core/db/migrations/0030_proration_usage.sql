-- The included usage that was left when the period ended, if less of it was left than of the time: then the amount follows
-- from it. Null if the amount follows from the unused time.
alter table prorations
  add column unused_attos numeric(38,0),
  add constraint prorations_unused_not_negative check (unused_attos >= 0);
