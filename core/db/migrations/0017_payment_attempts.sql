-- A try to take money from a card without the user (docs/collection.md). The row is written before the processor is called, so
-- that a crash leaves no unknown payment.
create table payment_attempts (
  app_id       uuid        not null,
  user_id      uuid        not null,
  id           uuid        not null,
  purpose      text        not null,
  -- The collection or the plan order that is paid.
  subject_id   uuid        not null,
  amount_cents bigint      not null,
  fee_cents    bigint      not null,
  description  text        not null,
  plane        text        not null,
  account_id   text        not null,
  processor    text        not null,
  -- Null if the user has no card that can be charged; then the processor is not called.
  customer_id  text,
  card_id      text,
  state        text        not null,
  -- Null until the processor has answered.
  processor_id text,
  -- Of a failed attempt: the processor's code, or a word of core.
  failure      text,
  created_at   timestamptz not null,
  -- The processor is asked about an undecided attempt at this time, if neither answer nor event comes before.
  check_at     timestamptz not null,
  ended_at     timestamptz,
  constraint payment_attempts_pk primary key (app_id, id),
  constraint payment_attempts_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint payment_attempts_purpose_known check (purpose in ('invoice', 'plan')),
  constraint payment_attempts_amount_positive check (amount_cents > 0 and fee_cents between 0 and amount_cents),
  constraint payment_attempts_plane_known check (plane in ('live', 'test')),
  constraint payment_attempts_card_whole check ((customer_id is null) = (card_id is null)),
  constraint payment_attempts_state_known check (state in ('started', 'succeeded', 'failed')),
  constraint payment_attempts_ended check ((ended_at is null) = (state = 'started')),
  constraint payment_attempts_failed check ((failure is not null) = (state = 'failed')),
  constraint payment_attempts_card_charged check (card_id is not null or state = 'failed'),
  constraint payment_attempts_paid check (state <> 'succeeded' or processor_id is not null)
);
-- One subject is charged once, however many cores and requests charge it.
create unique index payment_attempts_once on payment_attempts (app_id, purpose, subject_id) where state in ('started', 'succeeded');
create index payment_attempts_by_subject on payment_attempts (app_id, subject_id, created_at);
create index payment_attempts_by_user on payment_attempts (app_id, user_id, created_at);
create index payment_attempts_to_check on payment_attempts (check_at) where state = 'started';
