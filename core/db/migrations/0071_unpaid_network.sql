-- What apps cost their operator and nobody has paid (docs/billing.md, "Unpaid network cost"). Amounts are atto-dollars.

-- The network cost of booked tickets by app, owner and UTC day of booking, by real time. `owner_id` is the account that owned
-- the app then, or the app itself where it had no owner. Without rows for platform-owned apps, and from this migration on.
create table network_costs (
  app_id     uuid          not null references apps (id) on delete cascade,
  owner_id   uuid          not null,
  day        date          not null,
  cost_attos numeric(38,0) not null,
  constraint network_costs_pk primary key (app_id, day, owner_id)
) with (fillfactor = 70);
create index network_costs_by_owner on network_costs (owner_id, day);

-- One row for each owner whose apps were lent or reserved money. The bound grows with each lease and reservation; it is
-- counted anew from the rows above and from what is held when it is reached, or old.
create table network_exposures (
  owner_id    uuid          not null,
  -- Null: the deployment's UNPAID_NETWORK_USD.
  max_attos   numeric(38,0),
  bound_attos numeric(38,0) not null default 0,
  counted_at  timestamptz,
  constraint network_exposures_pk primary key (owner_id),
  constraint network_exposures_max_not_negative check (max_attos >= 0),
  constraint network_exposures_bound_not_negative check (bound_attos >= 0)
) with (fillfactor = 70);

-- The lowest ratio of retail to network price, scaled by 10^18, that the sidecar was told under the lease: what its rest may
-- cost the operator.
alter table leases add column retail_ratio numeric(38,0) not null default 1000000000000000000;
-- The bound at network price; null is the bound itself.
alter table authorisations add column network_attos numeric(38,0);

-- For the apps of an owner.
create index members_by_account on members (account_id);
