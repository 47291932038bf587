-- Plans and their versions, subscriptions, the catalogue, and the chain of prices.

-- The terms of plans are append-only as long as their app is there: who deletes an app deletes them with it.
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
  -- The name as it is compared: one folding of case, blanks and compatible characters.
  name_key           text        not null,
  updated_at         timestamptz not null,
  -- A deleted plan keeps its row and versions: periods and tickets name them.
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

-- A change of terms makes a new version; a period keeps the version that it began with.
create table plan_versions (
  app_id                 uuid          not null,
  plan_id                uuid          not null,
  version                integer       not null,
  included_attos         numeric(38,0),
  created_at             timestamptz   not null,
  -- The terms of a plan from `created_at` on. `plans.type` and `plans.billing_cycle` repeat the newest version's.
  -- What a ticket names.
  id                     bigint        generated always as identity,
  type                   text          not null,
  -- As given ("49.00").
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
  for each row execute function refuse_rewrite_of_terms();

-- What the metering backend has of each plan, and the lease that keeps syncs of one plan apart.
create table plan_syncs (
  app_id            uuid        not null,
  plan_id           uuid        not null,
  -- The backend's id of the plan as it was last written there.
  openmeter_plan_id text,
  -- The last sync that succeeded.
  last_synced_at    timestamptz,
  -- What was wrong with the last sync; null when it succeeded.
  sync_error        text,
  -- Failures since the last success.
  failures          integer     not null default 0,
  -- When a failed sync is repeated; null where that would fail in the same way.
  retry_at          timestamptz,
  -- `plans.updated_at` of what the last sync that ended was of.
  plan_updated_at   timestamptz,
  lease_id          uuid,
  leased_until      timestamptz,
  constraint plan_syncs_pk primary key (app_id, plan_id),
  constraint plan_syncs_plan foreign key (app_id, plan_id) references plans (app_id, id) on delete cascade,
  constraint plan_syncs_lease check ((lease_id is null) = (leased_until is null)),
  constraint plan_syncs_failures_not_negative check (failures >= 0)
);

-- One slot for each user: the primary key is the rule.
create table subscriptions (
  app_id       uuid        not null,
  user_id      uuid        not null,
  id           uuid        not null,
  plan_id      uuid        not null,
  status       text        not null,
  anchor_at    timestamptz not null,
  created_at   timestamptz not null,
  -- The successor that takes the slot over at `next_at`, and why it was scheduled.
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

-- Subscriptions that have ended. Each held the slot from `created_at` to `ended_at`, where the next one began.
create table subscription_history (
  app_id     uuid        not null,
  user_id    uuid        not null,
  id         uuid        not null,
  plan_id    uuid        not null,
  anchor_at  timestamptz not null,
  created_at timestamptz not null,
  ended_at   timestamptz not null,
  -- Why it ended.
  reason     text        not null,
  constraint subscription_history_pk primary key (app_id, user_id, id),
  constraint subscription_history_once unique (app_id, user_id, created_at),
  constraint subscription_history_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint subscription_history_whole check (created_at < ended_at),
  constraint subscription_history_reason_known check (reason in ('change', 'cancel'))
);
create trigger subscription_history_append_only before update or delete on subscription_history
  for each row execute function refuse_rewrite();

-- Versions of Starter plans that include more than the one before: what they add is given to everybody who is in a period
-- of an earlier version (docs/money.md).
create table starter_raises (
  app_id      uuid        not null,
  plan_id     uuid        not null,
  version     integer     not null,
  created_at  timestamptz not null,
  -- Everybody up to this user has it.
  after_user  uuid        not null default '00000000-0000-0000-0000-000000000000',
  finished_at timestamptz,
  constraint starter_raises_pk primary key (app_id, plan_id, version),
  constraint starter_raises_version foreign key (app_id, plan_id, version)
    references plan_versions (app_id, plan_id, version) on delete cascade
);
create index starter_raises_open on starter_raises (created_at) where finished_at is null;

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
  url      text        not null primary key,
  -- Null before the first that succeeded.
  read_at  timestamptz,
  tried_at timestamptz not null,
  error    text
);

-- What an app's own tickets were for. Only that app's: its tickets may come from a signer of its own.
create table seen_capabilities (
  app_id   uuid        not null references apps (id) on delete cascade,
  pipeline text        not null,
  model_id text        not null,
  seen_at  timestamptz not null,
  constraint seen_capabilities_pk primary key (app_id, pipeline, model_id)
);

-- Capabilities that an app does not offer, and named discovery policies (legacy).
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

-- The terms that apps sell by, chained as the entries of the ledger are (docs/money.md, "Chain of prices"): one item for each
-- version of a plan with its bundles, and for each cut. Rows from before are chained when a core starts.
create table price_chain (
  app_id uuid   not null,
  number bigint not null,
  -- "plan_version PLAN VERSION" or "cut SINCE".
  item   text   not null collate "C",
  -- The columns of the row as texts, so that the original of an edited row is known.
  facts  jsonb  not null,
  -- SHA-256 of the hash before, the app, the number, the item and its facts.
  hash   bytea  not null,
  constraint price_chain_pk primary key (app_id, number),
  constraint price_chain_item_unique unique (app_id, item),
  constraint price_chain_app foreign key (app_id) references apps (id) on delete cascade
);
create trigger price_chain_append_only before update or delete on price_chain
  for each row execute function refuse_rewrite_of_terms();

-- The last item of each app. Its row is locked to append, and shows an end that was cut off.
create table price_heads (
  app_id uuid   not null,
  number bigint not null,
  hash   bytea  not null,
  constraint price_heads_pk primary key (app_id),
  constraint price_heads_app foreign key (app_id) references apps (id) on delete cascade
);
