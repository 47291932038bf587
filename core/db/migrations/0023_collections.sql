-- A process that raises an invoice for a user and gets it paid (docs/collection.md). Requested in the transaction that made it
-- due.
create table collections (
  app_id          uuid        not null,
  user_id         uuid        not null,
  id              uuid        not null,
  reason          text        not null,
  state           text        not null,
  -- Whether the invoice has the usage, or only prices of periods.
  with_usage      boolean     not null,
  invoice_id      uuid,
  -- The subscription that its failed payments concern; null before the first failure, and on a free plan.
  subscription_id uuid,
  requested_at    timestamptz not null,
  -- By the clock of the app: when it is worked on next.
  due_at          timestamptz not null,
  -- Failed charges that were the card's or the user's fault, and the time of the first, by the clock of the app.
  failures        integer     not null default 0,
  failed_at       timestamptz,
  -- Calls in a row that failed for another reason.
  faults          integer     not null default 0,
  failure         text,
  -- The newest charge.
  attempt_id      uuid,
  ended_at        timestamptz,
  constraint collections_pk primary key (app_id, id),
  constraint collections_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint collections_reason_known check (reason in ('threshold', 'ceiling', 'period', 'final', 'request')),
  constraint collections_state_known check (
    state in ('requested', 'issued', 'charging', 'retrying', 'paid', 'carried', 'uncollectible', 'voided')),
  constraint collections_invoiced check ((invoice_id is null) = (state in ('requested', 'carried'))),
  constraint collections_ended check ((ended_at is not null) = (state in ('paid', 'carried', 'uncollectible', 'voided'))),
  constraint collections_failed check ((failures > 0) = (failed_at is not null))
);
-- However many threads, tickets or cores cross a threshold, one collection is requested. The end of a period waits for late
-- tickets, and must not delay the others.
create unique index collections_requested_once on collections (app_id, user_id, (reason in ('period', 'final')))
  where state = 'requested';
create index collections_to_issue on collections (due_at) where state = 'requested';
create index collections_to_pay on collections (due_at) where state in ('issued', 'retrying');
create index collections_by_user on collections (app_id, user_id, requested_at);
create index collections_by_invoice on collections (app_id, invoice_id) where invoice_id is not null;

create index processor_customers_by_expiry on processor_customers (card_expires_year, card_expires_month)
  where card_id is not null;

alter table balances
  -- The part of the debt that is on issued invoices which are neither paid nor void.
  add column invoiced_attos numeric(38,0) not null default 0,
  -- When the debt that is on no invoice is collected; null if it never is.
  add column collects_by text,
  add column collect_step_attos numeric(38,0),
  add constraint balances_collects_by_known check (collects_by in ('threshold', 'ceiling')),
  add constraint balances_collect_step_positive check (collect_step_attos > 0),
  add constraint balances_collect_step_named check ((collects_by is null) = (collect_step_attos is null));
