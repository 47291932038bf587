-- What tickets sell for, beside what they cost on the network (docs/money.md, "Price of a ticket").

alter table tickets
  -- The version of the plan that its user was on (plan_versions.id). Null without a price, for tickets from before this
  -- column, and for those whose prices were fixed elsewhere.
  add column terms_id           bigint,
  -- What its user is charged; null where it is the network cost.
  add column retail_attos       numeric(38,0),
  -- The platform's cut, in USD and in wei; null where there is none.
  add column platform_fee_attos numeric(38,0),
  add column platform_fee_wei   numeric(78,0);
alter table tickets add constraint tickets_sold_priced check (
  cost_attos is not null or num_nonnulls(terms_id, retail_attos, platform_fee_attos, platform_fee_wei) = 0) not valid;

-- `markup` is retail less network cost, so that sums to which a core of before adds tickets at network price stay right.
alter table usage_hourly
  add column markup_attos       numeric(38,0) not null default 0,
  add column platform_fee_attos numeric(38,0) not null default 0,
  add column platform_fee_wei   numeric(78,0) not null default 0;
alter table ticket_sessions
  add column markup_attos       numeric(38,0) not null default 0,
  add column platform_fee_attos numeric(38,0) not null default 0,
  add column platform_fee_wei   numeric(78,0) not null default 0;
alter table ticket_archives
  add column markup_attos       numeric(38,0) not null default 0,
  add column platform_fee_attos numeric(38,0) not null default 0,
  add column platform_fee_wei   numeric(78,0) not null default 0;
