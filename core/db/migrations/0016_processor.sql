-- The accounts of apps at the payment processor, and the state of the simulated processor (docs/billing.md).

-- An app's account at the processor. The row is written before the account is created there, so `id` is the key of that
-- request. A connection that ended keeps its row, with its account.
create table processor_accounts (
  app_id            uuid        not null references apps (id) on delete cascade,
  id                uuid        not null,
  processor         text        not null,
  plane             text        not null,
  -- The processor's id; null until the account was created.
  account           text,
  charges_enabled   boolean     not null default false,
  payouts_enabled   boolean     not null default false,
  details_submitted boolean     not null default false,
  created_at        timestamptz not null,
  -- When the account could take payments for the first time.
  connected_at      timestamptz,
  -- When the flags were read; null until the first time.
  read_at           timestamptz,
  ended_at          timestamptz,
  constraint processor_accounts_pk primary key (app_id, id),
  constraint processor_accounts_plane_known check (plane in ('live', 'test')),
  constraint processor_accounts_account_needed check (account is not null or connected_at is null)
);
create unique index processor_accounts_current on processor_accounts (app_id, processor, plane) where ended_at is null;
create index processor_accounts_by_account on processor_accounts (account, plane) where account is not null;
create index processor_accounts_by_reading on processor_accounts (read_at) where ended_at is null and account is not null;

-- A connection that was started and from which the processor leads back. Bound to the app and the person.
create table connect_states (
  hash                 bytea       not null,
  app_id               uuid        not null,
  -- The person.
  account_id           uuid        not null,
  processor_account_id uuid        not null,
  created_at           timestamptz not null,
  expires_at           timestamptz not null,
  used_at              timestamptz,
  constraint connect_states_pk primary key (hash)
);
create index connect_states_by_expiry on connect_states (expires_at);
create index connect_states_by_person on connect_states (app_id, account_id);

-- The simulated processor. `account` is empty in the platform's own account.
create table simulated_objects (
  id         text        not null,
  kind       text        not null,
  plane      text        not null,
  account    text        not null,
  data       jsonb       not null,
  created_at timestamptz not null,
  constraint simulated_objects_pk primary key (id),
  constraint simulated_objects_kind_known
    check (kind in ('account', 'link', 'customer', 'card', 'checkout', 'payment', 'refund')),
  constraint simulated_objects_plane_known check (plane in ('live', 'test'))
);
create index simulated_objects_links on simulated_objects (created_at) where kind = 'link';
create index simulated_objects_payments on simulated_objects ((data ->> 'reference')) where kind = 'payment';
create index simulated_objects_refunds on simulated_objects ((data ->> 'payment')) where kind = 'refund';

create table simulated_requests (
  plane      text        not null,
  account    text        not null,
  key        text        not null,
  -- Hash of the request; another request with the same key is refused.
  digest     text        not null,
  object_id  text        not null,
  created_at timestamptz not null,
  constraint simulated_requests_pk primary key (plane, account, key)
);
create index simulated_requests_by_age on simulated_requests (created_at);

create table simulated_movements (
  id         text        not null,
  plane      text        not null,
  account    text        not null,
  kind       text        not null,
  -- Cents; negative for money that leaves.
  amount     bigint      not null,
  -- Withheld from it for the platform.
  fee        bigint      not null,
  source     text        not null,
  created_at timestamptz not null,
  constraint simulated_movements_pk primary key (id),
  constraint simulated_movements_kind_known check (kind in ('payment', 'refund', 'fee'))
);
create index simulated_movements_in_order on simulated_movements (plane, account, created_at, id);

create table simulated_events (
  id                 text        not null,
  plane              text        not null,
  account            text        not null,
  subject            text        not null,
  type               text        not null,
  object_id          text        not null,
  payment            text,
  is_deauthorization boolean     not null,
  created_at         timestamptz not null,
  -- When the next attempt to deliver it is due.
  next_at            timestamptz not null,
  attempts           integer     not null default 0,
  delivered_at       timestamptz,
  constraint simulated_events_pk primary key (id)
);
create index simulated_events_due on simulated_events (next_at) where delivered_at is null;
create index simulated_events_by_delivery on simulated_events (delivered_at) where delivered_at is not null;
