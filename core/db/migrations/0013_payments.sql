-- Money at the payment processor. Amounts are whole cents of US dollars (docs/payments.md).

-- The processor's record of a user who pays, in one of its accounts; account_id '' is the platform's own.
create table processor_customers (
  app_id             uuid        not null,
  user_id            uuid        not null,
  processor          text        not null,
  plane              text        not null,
  account_id         text        not null,
  customer_id        text        not null,
  -- The default card; null without one that can be charged.
  card_id            text,
  card_brand         text,
  card_last4         text,
  card_expires_month smallint,
  card_expires_year  smallint,
  card_read_at       timestamptz,
  created_at         timestamptz not null,
  constraint processor_customers_pk primary key (app_id, user_id, processor, plane, account_id),
  constraint processor_customers_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint processor_customers_plane_known check (plane in ('live', 'test')),
  constraint processor_customers_card_whole check (
    (card_id is null) = (card_brand is null) and (card_id is null) = (card_last4 is null)
    and (card_id is null) = (card_expires_month is null) and (card_id is null) = (card_expires_year is null))
);
create index processor_customers_by_customer on processor_customers (customer_id);

-- A visit to the processor's pay page. The row is written before the processor is called, so that a repetition finds it.
create table checkouts (
  app_id       uuid        not null,
  user_id      uuid        not null,
  id           uuid        not null,
  -- The app whose caller opened it: another than app_id if its owner pays in the platform app.
  opened_by    uuid        not null,
  purpose      text        not null,
  -- Null for a card alone.
  amount_cents bigint,
  fee_cents    bigint      not null default 0,
  plan_id      uuid,
  plane        text        not null,
  account_id   text        not null,
  -- Null until the processor has answered.
  processor_id text,
  url          text,
  success_url  text        not null,
  cancel_url   text        not null,
  state        text        not null,
  -- Calls of the processor to open it.
  attempts     integer     not null default 0,
  -- Why a paid checkout has not done what it was for, in words.
  problem      text,
  created_at   timestamptz not null,
  -- The processor is asked about an open checkout at this time, if no event comes before.
  check_at     timestamptz not null,
  ended_at     timestamptz,
  constraint checkouts_pk primary key (app_id, id),
  constraint checkouts_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint checkouts_purpose_known check (purpose in ('top_up', 'card', 'plan')),
  constraint checkouts_amount_positive check (amount_cents > 0 and fee_cents between 0 and amount_cents),
  constraint checkouts_amount_of_payments check (purpose <> 'top_up' or amount_cents is not null),
  constraint checkouts_plan_named check ((purpose = 'plan') = (plan_id is not null)),
  constraint checkouts_plane_known check (plane in ('live', 'test')),
  constraint checkouts_state_known check (state in ('opening', 'open', 'processing', 'settled', 'failed', 'expired')),
  constraint checkouts_ended check ((ended_at is not null) = (state in ('settled', 'failed', 'expired')))
);
create index checkouts_by_id on checkouts (id);
create index checkouts_by_processor_id on checkouts (processor_id);
create index checkouts_to_check on checkouts (check_at) where ended_at is null;
create index checkouts_by_user on checkouts (app_id, user_id, created_at);

-- Money that arrived. A fact: rows are never edited.
create table payments (
  app_id       uuid        not null,
  user_id      uuid        not null,
  id           uuid        not null,
  purpose      text        not null,
  amount_cents bigint      not null,
  fee_cents    bigint      not null,
  plane        text        not null,
  account_id   text        not null,
  -- The processor's id of the payment.
  processor_id text        not null,
  checkout_id  uuid,
  -- Of a top-up: the credit that it bought.
  credit_id    uuid,
  created_at   timestamptz not null,
  constraint payments_pk primary key (app_id, id),
  constraint payments_once unique (app_id, processor_id),
  constraint payments_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint payments_purpose_known check (purpose in ('top_up', 'plan', 'invoice')),
  constraint payments_amount_positive check (amount_cents > 0 and fee_cents between 0 and amount_cents),
  constraint payments_top_up_credited check ((purpose = 'top_up') = (credit_id is not null))
);
create index payments_by_user on payments (app_id, user_id, created_at);
create index payments_by_credit on payments (app_id, credit_id) where credit_id is not null;
create index payments_by_processor_id on payments (processor_id);
create trigger payments_append_only before update or delete on payments
  for each row execute function refuse_rewrite();

-- Money that went back: refunds and disputes; and money that came again: failed refunds and disputes that were won. Only the time of booking is set later.
create table payment_returns (
  app_id       uuid        not null,
  user_id      uuid        not null,
  id           uuid        not null,
  payment_id   uuid        not null,
  kind         text        not null,
  amount_cents bigint      not null,
  created_at   timestamptz not null,
  -- When the ledger took the money; null while calls hold it.
  booked_at    timestamptz,
  constraint payment_returns_pk primary key (app_id, id),
  constraint payment_returns_payment foreign key (app_id, payment_id) references payments (app_id, id) on delete cascade,
  constraint payment_returns_kind_known check (kind in ('refund', 'refund_failed', 'dispute', 'dispute_won')),
  constraint payment_returns_amount_positive check (amount_cents > 0)
);
create index payment_returns_by_payment on payment_returns (app_id, payment_id);
create index payment_returns_to_book on payment_returns (created_at) where booked_at is null;
create trigger payment_returns_immutable before update of app_id, user_id, id, payment_id, kind, amount_cents, created_at or delete
  on payment_returns for each row execute function refuse_rewrite();

-- Events that the processor has sent. Stored before they are acknowledged, handled afterwards, kept for 90 days.
create table processor_events (
  plane        text        not null,
  account_id   text        not null,
  event_id     text        not null,
  subject      text,
  type         text        not null,
  object_id    text        not null,
  payment_id   text,
  is_deauthorization boolean not null,
  received_at  timestamptz not null,
  due_at       timestamptz not null,
  attempts     integer     not null default 0,
  handled_at   timestamptz,
  -- What handling it did, or the last failure.
  outcome      text,
  constraint processor_events_pk primary key (plane, account_id, event_id)
);
create index processor_events_due on processor_events (due_at) where handled_at is null;
create index processor_events_old on processor_events (received_at);

-- Of a refund: the credit that it takes back. Other corrections draw from all credits.
alter table adjustments add column credit_id uuid;
