-- The part of a period's included usage that it did not give, because free plans had given it in the same calendar period
-- (docs/subscriptions.md, "Periods"). Null in periods from before, which gave all of it.
alter table periods add column withheld_attos numeric(38,0);
alter table periods add constraint periods_withheld_within check (withheld_attos between 0 and included_attos);
