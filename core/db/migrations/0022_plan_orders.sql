-- Moves to plans that are paid before they are booked (docs/subscriptions.md, "Plans that need a card").

-- The price of the unused part of a period that an immediate change ended. It lowers what is due for the period that the
-- change began. A fact.
create table prorations (
  app_id       uuid          not null,
  user_id      uuid          not null,
  -- Start of the period that the change began.
  period_start timestamptz   not null,
  -- Start and plan of the period that it ended.
  ended_start  timestamptz   not null,
  plan_id      uuid          not null,
  amount_attos numeric(38,0) not null,
  created_at   timestamptz   not null,
  constraint prorations_pk primary key (app_id, user_id, period_start),
  constraint prorations_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint prorations_positive check (amount_attos > 0),
  constraint prorations_in_order check (ended_start < period_start)
);
create trigger prorations_append_only before update or delete on prorations
  for each row execute function refuse_rewrite();

-- A request to move to a plan, from the card step until it is booked or given up. Its checkout has the same id.
create table plan_orders (
  app_id          uuid          not null,
  user_id         uuid          not null,
  id              uuid          not null,
  plan_id         uuid          not null,
  timing          text          not null,
  -- The subscription in the slot when it was requested.
  from_id         uuid          not null,
  from_plan_id    uuid          not null,
  -- The price of the first period; 0 for a move at the end of the period, which is charged when it begins.
  price_attos     numeric(38,0) not null,
  -- The part of it that the unused rest of the running period pays, in whole cents. Computed again when the order is booked.
  proration_attos numeric(38,0) not null,
  -- Charged before the order is booked; null if there is nothing to charge.
  amount_cents    bigint,
  state           text          not null,
  -- Of an ended order that was not booked: why, in words.
  problem         text,
  -- The charge of the card on file that paid it.
  attempt_id      uuid,
  -- Of a booked order: the subscription to the plan, and its start.
  subscription_id uuid,
  effective_at    timestamptz,
  author          text          not null,
  correlation_id  text,
  created_at      timestamptz   not null,
  ended_at        timestamptz,
  constraint plan_orders_pk primary key (app_id, id),
  constraint plan_orders_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint plan_orders_plan foreign key (app_id, plan_id) references plans (app_id, id),
  constraint plan_orders_timing_known check (timing in ('immediate', 'next_billing_cycle')),
  constraint plan_orders_amounts check (price_attos >= 0 and proration_attos >= 0 and amount_cents > 0),
  constraint plan_orders_state_known check (state in ('open', 'booked', 'failed', 'expired', 'credited')),
  constraint plan_orders_ended check ((ended_at is null) = (state = 'open')),
  constraint plan_orders_booked check (
    num_nonnulls(subscription_id, effective_at) = case state when 'booked' then 2 else 0 end)
);
-- One order of a user at a time.
create unique index plan_orders_one_open on plan_orders (app_id, user_id) where state = 'open';
create index plan_orders_to_check on plan_orders (created_at) where state = 'open';
create index plan_orders_by_user on plan_orders (app_id, user_id, created_at);
create index plan_orders_by_subscription on plan_orders (app_id, subscription_id) where subscription_id is not null;
