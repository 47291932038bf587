-- What an app sells: plans, their versions with all terms, what each version prices, and the catalogue of what can be priced.

alter table plans
  add column is_network_default boolean     not null default false,
  -- The name as it is compared: one folding of case, blanks and compatible characters.
  add column name_key           text,
  add column updated_at         timestamptz,
  -- A deleted plan keeps its row and versions: periods and tickets name them.
  add column deleted_at         timestamptz;
update plans set name_key = lower(regexp_replace(btrim(name), '\s+', ' ', 'g')), updated_at = created_at;
alter table plans
  alter column is_network_default drop default,
  alter column name_key set not null,
  alter column updated_at set not null,
  add constraint plans_defaults_differ check (not (is_starter_default and is_network_default)),
  add constraint plans_defaults_stay check (deleted_at is null or not (is_starter_default or is_network_default));
drop index plans_name_unique;
create unique index plans_name_unique on plans (app_id, name_key) where deleted_at is null;
create unique index plans_one_network_default on plans (app_id) where is_network_default;

-- The terms of a plan from `created_at` on. `plans.type` and `plans.billing_cycle` repeat the newest version's.
alter table plan_versions
  -- What a ticket names.
  add column id                     bigint generated always as identity,
  add column type                   text,
  -- As given ("49.00").
  add column price_amount           text           not null default '0',
  add column price_currency         text           not null default 'USD',
  add column included_units         numeric(38,0),
  add column overage_rate_wei       numeric(78,0),
  -- USD for one USD-micro of network cost; null sells at network price.
  add column retail_rate            numeric,
  add column billing_cycle          text,
  add column charge_threshold_attos numeric(38,0);
update plan_versions v
set type = p.type, billing_cycle = p.billing_cycle
from plans p
where p.app_id = v.app_id and p.id = v.plan_id;
alter table plan_versions
  alter column type set not null,
  alter column billing_cycle set not null,
  alter column price_amount drop default,
  alter column price_currency drop default,
  -- Null where the owner has not said what is included: nothing is.
  alter column included_attos drop not null,
  add constraint plan_versions_id_unique unique (id),
  add constraint plan_versions_type_known check (type in ('free', 'subscription', 'usage')),
  add constraint plan_versions_cycle_known check (billing_cycle in ('daily', 'weekly', 'monthly')),
  add constraint plan_versions_units check (
    case type
      when 'free' then included_units is null and overage_rate_wei is null
      when 'subscription' then included_units is not null and overage_rate_wei is not null
      else true
    end),
  add constraint plan_versions_units_not_negative check (included_units >= 0 and overage_rate_wei >= 0),
  add constraint plan_versions_rate_within check (retail_rate between 0 and 1 and scale(retail_rate) <= 18),
  add constraint plan_versions_threshold check (charge_threshold_attos is null or (type = 'usage' and charge_threshold_attos > 0));
create trigger plan_versions_append_only before update or delete on plan_versions
  for each row execute function refuse_rewrite();

-- What a version says about single pipelines and models.
create table plan_bundles (
  app_id             uuid             not null,
  plan_id            uuid             not null,
  version            integer          not null,
  -- Stays the same in later versions that take the bundle over.
  id                 uuid             not null,
  position           integer          not null,
  pipeline           text             not null,
  -- '*' for every model of the pipeline.
  model_id           text             not null,
  sla_target_score   double precision,
  sla_target_p95_ms  integer,
  -- Wei for one unit.
  max_price_per_unit numeric(38,0),
  -- As in plan_versions; null has no price of its own.
  retail_rate        numeric,
  constraint plan_bundles_pk primary key (app_id, plan_id, version, pipeline, model_id),
  constraint plan_bundles_id_unique unique (app_id, plan_id, version, id),
  constraint plan_bundles_version foreign key (app_id, plan_id, version)
    references plan_versions (app_id, plan_id, version) on delete cascade,
  constraint plan_bundles_rate_within check (retail_rate between 0 and 1 and scale(retail_rate) <= 18),
  constraint plan_bundles_max_price_positive check (max_price_per_unit > 0)
);
create trigger plan_bundles_append_only before update or delete on plan_bundles
  for each row execute function refuse_rewrite();

-- The pipelines and models that exist for every app, beside the setting PIPELINES: read from CATALOG_URL, or added by an
-- operator.
create table catalog_entries (
  source   text        not null,
  pipeline text        not null,
  -- '*' for every model of the pipeline.
  model_id text        not null,
  added_at timestamptz not null,
  constraint catalog_entries_pk primary key (source, pipeline, model_id),
  constraint catalog_entries_source_known check (source in ('url', 'operator'))
);

-- When CATALOG_URL was last read, and what was wrong last.
create table catalog_reads (
  url     text        not null primary key,
  -- Null before the first that succeeded.
  read_at timestamptz,
  tried_at timestamptz not null,
  error   text
);

-- What an app's own tickets were for. Only that app's: its tickets may come from a signer of its own.
create table seen_capabilities (
  app_id   uuid        not null references apps (id) on delete cascade,
  pipeline text        not null,
  model_id text        not null,
  seen_at  timestamptz not null,
  constraint seen_capabilities_pk primary key (app_id, pipeline, model_id)
);
insert into seen_capabilities (app_id, pipeline, model_id, seen_at)
select u.app_id, u.pipeline, u.model_id, max(u.hour)
from usage_hourly u
join apps a on a.id = u.app_id
group by u.app_id, u.pipeline, u.model_id;
