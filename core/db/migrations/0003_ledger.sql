-- Plans and what users may spend. Amounts are atto-dollars (10^-18 USD).

create table plans (
  app_id              uuid          not null references apps (id) on delete cascade,
  id                  uuid          not null,
  name                text          not null,
  type                text          not null,
  status              text          not null,
  is_starter_default  boolean       not null,
  billing_cycle       text          not null,
  created_at          timestamptz   not null,
  constraint plans_pk primary key (app_id, id),
  constraint plans_type_known check (type in ('free', 'subscription', 'usage')),
  constraint plans_status_known check (status in ('active', 'inactive')),
  constraint plans_cycle_known check (billing_cycle in ('daily', 'weekly', 'monthly'))
);
create unique index plans_name_unique on plans (app_id, lower(name));
create unique index plans_one_starter on plans (app_id) where is_starter_default;

-- A change of terms makes a new version; a period keeps the version that it began with.
create table plan_versions (
  app_id         uuid          not null,
  plan_id        uuid          not null,
  version        integer       not null,
  included_attos numeric(38,0) not null,
  created_at     timestamptz   not null,
  constraint plan_versions_pk primary key (app_id, plan_id, version),
  constraint plan_versions_plan foreign key (app_id, plan_id) references plans (app_id, id) on delete cascade,
  constraint plan_versions_included_not_negative check (included_attos >= 0)
);

-- One slot for each user: the primary key is the rule.
create table subscriptions (
  app_id     uuid        not null,
  user_id    uuid        not null,
  id         uuid        not null,
  plan_id    uuid        not null,
  status     text        not null,
  anchor_at  timestamptz not null,
  created_at timestamptz not null,
  constraint subscriptions_one_slot primary key (app_id, user_id),
  constraint subscriptions_id_unique unique (app_id, id),
  constraint subscriptions_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint subscriptions_plan foreign key (app_id, plan_id) references plans (app_id, id),
  constraint subscriptions_status_known check (status in ('active'))
);

-- Credit. Everything but what remains and how it ended is written once.
create table grants (
  app_id          uuid          not null,
  user_id         uuid          not null,
  id              uuid          not null,
  kind            text          not null,
  source          text          not null,
  feature_key     text,
  amount_attos    numeric(38,0) not null,
  remaining_attos numeric(38,0) not null,
  priority        smallint      not null,
  effective_at    timestamptz   not null,
  expires_at      timestamptz,
  expired_at      timestamptz,
  created_at      timestamptz   not null,
  constraint grants_pk primary key (app_id, user_id, id),
  constraint grants_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint grants_kind_known check (kind in ('included', 'grant')),
  constraint grants_source_known check (source in ('trial', 'manual', 'promo', 'plan_adjustment')),
  constraint grants_amount_positive check (amount_attos > 0),
  constraint grants_remaining_within check (remaining_attos between 0 and amount_attos),
  constraint grants_included_ends check (kind <> 'included' or expires_at is not null)
) with (fillfactor = 70);
-- Included usage is given once for each period.
create unique index grants_included_once on grants (app_id, user_id, effective_at) where kind = 'included';
create index grants_to_expire on grants (expires_at) where expired_at is null and expires_at is not null;

create function refuse_rewrite() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only', tg_table_name using errcode = 'check_violation';
end $$;

-- Column triggers cost the ingest path nothing: it only ever sets what remains.
create trigger grants_immutable before update of app_id, user_id, id, kind, source, feature_key, amount_attos, priority,
    effective_at, expires_at, created_at or delete on grants
  for each row execute function refuse_rewrite();

-- Every change of a balance with its cause. A charge covers all tickets of a user in one ingest batch.
create table ledger_entries (
  app_id              uuid          not null,
  user_id             uuid          not null,
  seq                 bigint        not null,
  kind                text          not null,
  amount_attos        numeric(38,0) not null,
  overage_attos       numeric(38,0) not null,
  balance_after_attos numeric(38,0) not null,
  cause_id            uuid          not null,
  created_at          timestamptz   not null,
  constraint ledger_entries_pk primary key (app_id, user_id, seq),
  constraint ledger_entries_kind_known check (kind in ('grant', 'charge', 'expire')),
  constraint ledger_entries_balance_not_negative check (balance_after_attos >= 0),
  constraint ledger_entries_sign check (case kind when 'grant' then amount_attos > 0 else amount_attos <= 0 end),
  constraint ledger_entries_overage_from_charges check (overage_attos >= 0 and (kind = 'charge' or overage_attos = 0))
);
create trigger ledger_entries_append_only before update or delete on ledger_entries
  for each row execute function refuse_rewrite();

-- The head of each user's ledger, always the fold of its entries.
create table balances (
  app_id                uuid          not null,
  user_id               uuid          not null,
  seq                   bigint        not null default 0,
  balance_attos         numeric(38,0) not null default 0,
  granted_attos         numeric(38,0) not null default 0,
  topup_attos           numeric(38,0) not null default 0,
  consumed_attos        numeric(38,0) not null default 0,
  overage_attos         numeric(38,0) not null default 0,
  expired_attos         numeric(38,0) not null default 0,
  period_start          timestamptz   not null,
  period_end            timestamptz   not null,
  -- Tickets signed from here on belong to the period: its start, or, in a user's first, any time, because the
  -- ticket that provisions a user was signed before the user was known.
  period_counts_from    timestamptz   not null,
  period_consumed_attos numeric(38,0) not null default 0,
  updated_at            timestamptz   not null,
  constraint balances_pk primary key (app_id, user_id),
  constraint balances_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint balances_not_negative check (balance_attos >= 0),
  constraint balances_add_up check (granted_attos = balance_attos + (consumed_attos - overage_attos) + expired_attos)
) with (fillfactor = 70);
