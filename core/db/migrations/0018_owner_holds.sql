-- The second account of a call: what the apps of an owner hold of its account in the platform app (docs/escrow.md, "The
-- owner's account"). The amount is an upper bound, as owner charge: it grows with each lease and reservation, and is counted
-- again from leases and authorisations when it is old or little is left.
create table owner_holds (
  app_id     uuid          not null,
  user_id    uuid          not null,
  held_attos numeric(38,0) not null default 0,
  counted_at timestamptz,
  constraint owner_holds_pk primary key (app_id, user_id),
  constraint owner_holds_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint owner_holds_not_negative check (held_attos >= 0)
) with (fillfactor = 70);

-- The tables network_exposures and network_costs, which bounded the network cost of 30 days, are not used any more. They
-- stay, because the previous release still writes them while it is replaced.
