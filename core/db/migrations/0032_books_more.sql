-- What the estimate of a lost call drew, and from which credits: that is given back when its ticket comes, and no part
-- that was overage. Null unless the call is charged, and for estimates older than the columns.
alter table authorisations
  add column drawn_ids   uuid[],
  add column drawn_attos numeric(38,0)[],
  add constraint authorisations_drawn_whole check (
    (drawn_ids is null) = (drawn_attos is null)
    and coalesce(cardinality(drawn_ids), 0) = coalesce(cardinality(drawn_attos), 0));
