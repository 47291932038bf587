-- What the payment processor has moved, as it reports it, and where our books differ (docs/payments.md).

-- How far each account of the processor is compared; account_id '' is the platform's own.
create table processor_reconciliations (
  processor   text        not null,
  plane       text        not null,
  account_id  text        not null,
  -- The app that the account belongs to; null for the platform's own.
  app_id      uuid,
  -- Movements before this time are recorded and compared.
  through     timestamptz not null,
  -- A window that is being read: its end, and the last movement that was recorded.
  window_to   timestamptz,
  page_after  text,
  due_at      timestamptz not null,
  failures    integer     not null default 0,
  failure     text,
  -- When the account ended and all of it was compared.
  ended_at    timestamptz,
  constraint processor_reconciliations_pk primary key (processor, plane, account_id),
  constraint processor_reconciliations_plane_known check (plane in ('live', 'test')),
  constraint processor_reconciliations_page check (page_after is null or window_to is not null)
);

-- Payments of ours and what belongs to them, payouts, and the platform's fees. Facts: rows are never edited. Amounts are in the
-- smallest unit of their currency; money that leaves is negative.
create table processor_movements (
  processor     text        not null,
  plane         text        not null,
  account_id    text        not null,
  movement_id   text        not null,
  kind          text        not null,
  amount        bigint      not null,
  currency      text        not null,
  fee           bigint      not null,
  platform_fee  bigint      not null,
  fee_currency  text        not null,
  source        text,
  -- The processor's id of the payment that it belongs to.
  payment_id    text,
  fee_reference text,
  created_at    timestamptz not null,
  constraint processor_movements_pk primary key (processor, plane, account_id, movement_id),
  constraint processor_movements_kind_known check (kind in ('payment', 'refund', 'dispute', 'fee', 'payout', 'other'))
);
create index processor_movements_by_payment on processor_movements (payment_id) where payment_id is not null;
create index processor_movements_by_fee on processor_movements (fee_reference) where kind = 'fee' and fee_reference is not null;
create index processor_movements_by_time on processor_movements (processor, plane, account_id, created_at);
create trigger processor_movements_append_only before update or delete on processor_movements
  for each row execute function refuse_rewrite();

-- Where a payment differs. A fact, until it is resolved once.
create table processor_differences (
  id                   uuid        not null,
  processor            text        not null,
  plane                text        not null,
  account_id           text        not null,
  -- The app of our payment, or of the account; null if it is unknown.
  app_id               uuid,
  subject              text        not null,
  problem              text        not null,
  -- The processor's id of the payment, and ours.
  processor_payment_id text        not null,
  payment_id           uuid,
  -- In the smallest unit; null where there is nothing.
  ours                 bigint,
  theirs               bigint,
  currency             text        not null,
  found_at             timestamptz not null,
  resolved_at          timestamptz,
  resolution           text,
  -- Null: a later comparison found that both agree, or other figures.
  resolved_by          text,
  constraint processor_differences_pk primary key (id),
  constraint processor_differences_subject_known check (subject in ('payment', 'refund', 'dispute', 'fee', 'earning')),
  constraint processor_differences_problem_known check (problem in ('missing_here', 'missing_there', 'amount', 'currency')),
  constraint processor_differences_resolved check ((resolved_at is null) = (resolution is null) and (resolved_by is null or resolved_at is not null))
);
create unique index processor_differences_open on processor_differences (processor, plane, account_id, processor_payment_id, subject)
  where resolved_at is null;
create index processor_differences_by_payment on processor_differences (processor_payment_id);
create index processor_differences_by_time on processor_differences (found_at, id);
create trigger processor_differences_facts before update of id, processor, plane, account_id, app_id, subject, problem, processor_payment_id,
  payment_id, ours, theirs, currency, found_at or delete on processor_differences for each row execute function refuse_rewrite();
create trigger processor_differences_resolved_once before update on processor_differences
  for each row when (old.resolved_at is not null) execute function refuse_rewrite();

-- For comparisons of a time range.
create index payments_by_account on payments (plane, account_id, created_at);
create index payment_returns_by_time on payment_returns (created_at);
