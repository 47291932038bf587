-- Plans and their versions, subscriptions, the catalogue, and the chain of prices.

-- The terms of plans are append-only while their app exists. Deleting the app deletes them.
create function refuse_rewrite_of_terms() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and not exists (select from apps where id = old.app_id) then
    return old;
  end if;
  raise exception '% is append-only', tg_table_name using errcode = 'check_violation';
end $$;

create table plans (
  app_id             uuid        not null references apps (id) on delete cascade,
  id                 uuid        not null,
  name               text        not null,
  type               text        not null,
  status             text        not null,
  is_starter_default boolean     not null,
  billing_cycle      text        not null,
  created_at         timestamptz not null,
  is_network_default boolean     not null,
  -- The name as compared: case, blanks and compatible characters folded.
  name_key           text        not null,
  updated_at         timestamptz not null,
  -- A deleted plan keeps its row and versions, because periods and tickets refer to them.
  deleted_at         timestamptz,
  constraint plans_pk primary key (app_id, id),
  constraint plans_type_known check (type in ('free', 'subscription', 'usage')),
  constraint plans_status_known check (status in ('active', 'inactive')),
  constraint plans_cycle_known check (billing_cycle in ('daily', 'weekly', 'monthly')),
  constraint plans_defaults_differ check (not (is_starter_default and is_network_default)),
  constraint plans_defaults_stay check (deleted_at is null or not (is_starter_default or is_network_default))
);
create unique index plans_one_starter on plans (app_id) where is_starter_default;
create unique index plans_name_unique on plans (app_id, name_key) where deleted_at is null;
create unique index plans_one_network_default on plans (app_id) where is_network_default;

-- Terms of a plan from `created_at` on. A period keeps the version that it began with. `plans.type` and
-- `plans.billing_cycle` repeat those of the newest version.
create table plan_versions (
  app_id                 uuid          not null,
  plan_id                uuid          not null,
  version                integer       not null,
  included_attos         numeric(38,0),
  created_at             timestamptz   not null,
  -- Id that tickets refer to.
  id                     bigint        generated always as identity,
  type                   text          not null,
  -- As entered ("49.00").
  price_amount           text          not null,
  price_currency         text          not null,
  included_units         numeric(38,0),
  overage_rate_wei       numeric(78,0),
  -- USD for one USD-micro of network cost; null sells at network price.
  retail_rate            numeric,
  billing_cycle          text          not null,
  charge_threshold_attos numeric(38,0),
  constraint plan_versions_pk primary key (app_id, plan_id, version),
  constraint plan_versions_plan foreign key (app_id, plan_id) references plans (app_id, id) on delete cascade,
  constraint plan_versions_included_not_negative check (included_attos >= 0),
  constraint plan_versions_id_unique unique (id),
  constraint plan_versions_type_known check (type in ('free', 'subscription', 'usage')),
  constraint plan_versions_cycle_known check (billing_cycle in ('daily', 'weekly', 'monthly')),
  constraint plan_versions_units check (
    case type
      when 'free' then included_units is null and overage_rate_wei is null
      when 'subscription' then included_units is not null and overage_rate_wei is not null
      else true
    end),
  constraint plan_versions_units_not_negative check (included_units >= 0 and overage_rate_wei >= 0),
  constraint plan_versions_rate_within check (retail_rate between 0 and 1 and scale(retail_rate) <= 18),
  constraint plan_versions_threshold check (charge_threshold_attos is null or (type = 'usage' and charge_threshold_attos > 0))
);
create trigger plan_versions_append_only before update or delete on plan_versions
  for each row execute function refuse_rewrite_of_terms();

-- Terms of a version for single pipelines and models.
create table plan_bundles (
  app_id             uuid             not null,
  plan_id            uuid             not null,
  version            integer          not null,
  -- Later versions that keep the bundle keep its id.
  id                 uuid             not null,
  position           integer          not null,
  pipeline           text             not null,
  -- '*' for every model of the pipeline.
  model_id           text             not null,
  sla_target_score   double precision,
  sla_target_p95_ms  integer,
  -- Wei for one unit.
  max_price_per_unit numeric(38,0),
  -- As in plan_versions; null if the bundle has no price.
  retail_rate        numeric,
  constraint plan_bundles_pk primary key (app_id, plan_id, version, pipeline, model_id),
  constraint plan_bundles_id_unique unique (app_id, plan_id, version, id),
  constraint plan_bundles_version foreign key (app_id, plan_id, version)
    references plan_versions (app_id, plan_id, version) on delete cascade,
  constraint plan_bundles_rate_within check (retail_rate between 0 and 1 and scale(retail_rate) <= 18),
  constraint plan_bundles_max_price_positive check (max_price_per_unit > 0)
);
create trigger plan_bundles_append_only before update or delete on plan_bundles
  for each row execute function refuse_rewrite_of_terms();

-- State of each plan in the metering backend, and the lease that serialises its syncs.
create table plan_syncs (
  app_id            uuid        not null,
  plan_id           uuid        not null,
  -- The backend's id of the last written plan.
  openmeter_plan_id text,
  -- The last sync that succeeded.
  last_synced_at    timestamptz,
  -- Error of the last sync; null after success.
  sync_error        text,
  -- Failures since the last success.
  failures          integer     not null default 0,
  -- When a failed sync is retried; null if a retry would fail in the same way.
  retry_at          timestamptz,
  -- `plans.updated_at` of the plan that the last finished sync wrote.
  plan_updated_at   timestamptz,
  lease_id          uuid,
  leased_until      timestamptz,
  constraint plan_syncs_pk primary key (app_id, plan_id),
  constraint plan_syncs_plan foreign key (app_id, plan_id) references plans (app_id, id) on delete cascade,
  constraint plan_syncs_lease check ((lease_id is null) = (leased_until is null)),
  constraint plan_syncs_failures_not_negative check (failures >= 0)
);

-- One slot for each user, by the primary key.
create table subscriptions (
  app_id       uuid        not null,
  user_id      uuid        not null,
  id           uuid        not null,
  plan_id      uuid        not null,
  status       text        not null,
  anchor_at    timestamptz not null,
  created_at   timestamptz not null,
  -- The subscription that takes the slot at `next_at`, and the reason.
  next_id      uuid,
  next_plan_id uuid,
  next_at      timestamptz,
  next_reason  text,
  next_set_at  timestamptz,
  constraint subscriptions_one_slot primary key (app_id, user_id),
  constraint subscriptions_id_unique unique (app_id, id),
  constraint subscriptions_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint subscriptions_plan foreign key (app_id, plan_id) references plans (app_id, id),
  constraint subscriptions_status_known check (status in ('active')),
  constraint subscriptions_next_plan foreign key (app_id, next_plan_id) references plans (app_id, id),
  constraint subscriptions_next_whole check (
    num_nulls(next_id, next_plan_id, next_at, next_reason, next_set_at) in (0, 5)),
  constraint subscriptions_next_later check (next_at > created_at),
  constraint subscriptions_next_reason_known check (next_reason in ('change', 'cancel'))
);
create index subscriptions_to_follow on subscriptions (next_at) where next_at is not null;
create index subscriptions_by_plan on subscriptions (app_id, plan_id, user_id);
create index subscriptions_by_next_plan on subscriptions (app_id, next_plan_id) where next_plan_id is not null;

-- Ended subscriptions. Each held the slot from `created_at` to `ended_at`, when the next one began.
create table subscription_history (
  app_id     uuid        not null,
  user_id    uuid        not null,
  id         uuid        not null,
  plan_id    uuid        not null,
  anchor_at  timestamptz not null,
  created_at timestamptz not null,
  ended_at   timestamptz not null,
  -- Reason of the end.
  reason     text        not null,
  constraint subscription_history_pk primary key (app_id, user_id, id),
  constraint subscription_history_once unique (app_id, user_id, created_at),
  constraint subscription_history_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint subscription_history_whole check (created_at < ended_at),
  constraint subscription_history_reason_known check (reason in ('change', 'cancel'))
);
create trigger subscription_history_append_only before update or delete on subscription_history
  for each row execute function refuse_rewrite();

-- Versions of Starter plans that include more than the one before. Users in a period of an earlier version receive the
-- difference (docs/subscriptions.md).
create table starter_raises (
  app_id      uuid        not null,
  plan_id     uuid        not null,
  version     integer     not null,
  created_at  timestamptz not null,
  -- Users up to this id have received it.
  after_user  uuid        not null default '00000000-0000-0000-0000-000000000000',
  finished_at timestamptz,
  constraint starter_raises_pk primary key (app_id, plan_id, version),
  constraint starter_raises_version foreign key (app_id, plan_id, version)
    references plan_versions (app_id, plan_id, version) on delete cascade
);
create index starter_raises_open on starter_raises (created_at) where finished_at is null;

-- Pipelines and models that every app may name, in addition to the setting PIPELINES: read from CATALOG_URL or added by
-- an operator.
create table catalog_entries (
  source   text        not null,
  pipeline text        not null,
  -- '*' for every model of the pipeline.
  model_id text        not null,
  added_at timestamptz not null,
  constraint catalog_entries_pk primary key (source, pipeline, model_id),
  constraint catalog_entries_source_known check (source in ('url', 'operator'))
);

-- The last reading of CATALOG_URL and its error.
create table catalog_reads (
  url      text        not null primary key,
  -- Null before the first success.
  read_at  timestamptz,
  tried_at timestamptz not null,
  error    text
);

-- Pipelines and models of an app's tickets. They count for that app alone, whose signer may be its own.
create table seen_capabilities (
  app_id   uuid        not null references apps (id) on delete cascade,
  pipeline text        not null,
  model_id text        not null,
  seen_at  timestamptz not null,
  constraint seen_capabilities_pk primary key (app_id, pipeline, model_id)
);

-- Capabilities that an app excludes, and named discovery policies.
create table manifests (
  app_id     uuid        not null references apps (id) on delete cascade,
  excluded   jsonb       not null,
  updated_at timestamptz not null,
  constraint manifests_pk primary key (app_id)
);

create table discovery_profiles (
  app_id       uuid        not null references apps (id) on delete cascade,
  id           uuid        not null,
  name         text        not null,
  policy       jsonb       not null,
  capabilities jsonb       not null,
  created_at   timestamptz not null,
  updated_at   timestamptz not null,
  constraint discovery_profiles_pk primary key (app_id, id)
);
create unique index discovery_profiles_name_unique on discovery_profiles (app_id, lower(name));

-- The prices of apps, chained like ledger entries (docs/ledger.md, "Chain of prices"): one item for each plan version with
-- its bundles, and for each cut.
create table price_chain (
  app_id uuid   not null,
  number bigint not null,
  -- "plan_version PLAN VERSION" or "cut SINCE".
  item   text   not null collate "C",
  -- The columns of the row as text, so that the original of an edited row is known.
  facts  jsonb  not null,
  -- SHA-256 of the hash before, the app, the number, the item and its facts.
  hash   bytea  not null,
  constraint price_chain_pk primary key (app_id, number),
  constraint price_chain_item_unique unique (app_id, item),
  constraint price_chain_app foreign key (app_id) references apps (id) on delete cascade
);
create trigger price_chain_append_only before update or delete on price_chain
  for each row execute function refuse_rewrite_of_terms();

-- The last item of each app. Appending locks this row; it also reveals deleted last items.
create table price_heads (
  app_id uuid   not null,
  number bigint not null,
  hash   bytea  not null,
  constraint price_heads_pk primary key (app_id),
  constraint price_heads_app foreign key (app_id) references apps (id) on delete cascade
);
