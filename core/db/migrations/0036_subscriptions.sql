-- Changes of plan: what follows a subscription, and what came before it.

alter table subscriptions
  -- The successor that takes the slot over at `next_at`, and why it was scheduled.
  add column next_id      uuid,
  add column next_plan_id uuid,
  add column next_at      timestamptz,
  add column next_reason  text,
  add column next_set_at  timestamptz,
  add constraint subscriptions_next_plan foreign key (app_id, next_plan_id) references plans (app_id, id),
  add constraint subscriptions_next_whole check (
    num_nulls(next_id, next_plan_id, next_at, next_reason, next_set_at) in (0, 5)),
  add constraint subscriptions_next_later check (next_at > created_at),
  add constraint subscriptions_next_reason_known check (next_reason in ('change', 'cancel'));
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

-- Periods that are over, for whoever enters the next ones. No booking but that changes the column.
create index balances_by_period_end on balances (period_end);

-- Included usage ends early when its period is left: at a change of plan. It never ends later than it was given for.
drop trigger grants_immutable on grants;
create trigger grants_immutable before update of app_id, user_id, id, kind, source, feature_key, amount_attos, priority,
    effective_at, created_at or delete on grants
  for each row execute function refuse_rewrite();
create trigger grants_end_fixed before update of expires_at on grants
  for each row when (old.kind <> 'included' or new.expires_at is null or new.expires_at > old.expires_at)
  execute function refuse_rewrite();

-- Versions of Starter plans that include more than the one before: what they add is given to everybody who is in a period
-- of an earlier version (docs/subscriptions.md).
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
