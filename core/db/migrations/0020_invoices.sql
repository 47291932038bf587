-- Invoices and credit notes (docs/invoices.md). Amounts are atto-dollars (10^-18 USD), except whole cents.

-- Returns a plan's price as charged for a period; 0 for one that cannot be charged (docs/decisions/65.md).
create function chargeable_price_attos(amount text, currency text) returns numeric language sql immutable as $$
  select case when currency = 'USD' and amount ~ '^[0-9]+(\.[0-9]{1,2})?$' then trunc(amount::numeric * 10::numeric ^ 18) else 0 end
$$;

-- What is charged for the period in advance: 0 in free plans, and in the first period after an operator's change. Null in
-- periods that began before prices were collected.
alter table periods
  add column price_attos numeric(38,0),
  add constraint periods_price_not_negative check (price_attos >= 0) not valid;

-- The last number of each issuer. Its lock is held until the documents are committed, so that no number is missing.
create table invoice_numbers (
  app_id           uuid   not null,
  last_invoice     bigint not null default 0,
  last_credit_note bigint not null default 0,
  constraint invoice_numbers_pk primary key (app_id),
  constraint invoice_numbers_app foreign key (app_id) references apps (id) on delete cascade
);

-- Facts: a document never changes. An invoice is paid when a payment names it, and void when a credit note of reason
-- `void` names it.
create table invoices (
  app_id           uuid          not null,
  user_id          uuid          not null,
  id               uuid          not null,
  kind             text          not null,
  number           bigint        not null,
  -- Of a credit note: the invoice that it corrects.
  invoice_id       uuid,
  reason           text          not null,
  -- Of a credit note: the reason in the author's words, and the author.
  note             text,
  author           text,
  -- The ledger entries that the debt covers: after `from_seq`, through `through_seq`. Null for a credit note.
  from_seq         bigint,
  through_seq      bigint,
  -- Prices of periods, overage and prorations. They are not in the ledger.
  price_attos      numeric(38,0) not null,
  debt_attos       numeric(38,0) not null,
  -- What earlier documents left: parts of cents, and amounts below 0.
  carried_in_attos numeric(38,0) not null,
  carried_attos    numeric(38,0) not null,
  total_cents      bigint        not null,
  plane            text          not null,
  -- The period of the account at that time.
  period_start     timestamptz   not null,
  period_end       timestamptz   not null,
  -- By the clock of the app.
  issued_at        timestamptz   not null,
  constraint invoices_pk primary key (app_id, id),
  constraint invoices_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint invoices_numbered_once unique (app_id, kind, number),
  constraint invoices_corrected foreign key (app_id, invoice_id) references invoices (app_id, id) on delete cascade,
  constraint invoices_kind_known check (kind in ('invoice', 'credit_note')),
  constraint invoices_reason_known check (
    case kind when 'invoice' then reason in ('threshold', 'ceiling', 'period', 'final', 'request', 'plan')
    else reason in ('void', 'refund', 'credit') end),
  constraint invoices_number_positive check (number > 0),
  constraint invoices_of_kind check (
    case kind
      when 'invoice' then num_nonnulls(invoice_id, note, author) = 0 and num_nulls(from_seq, through_seq) = 0
        and from_seq <= through_seq and total_cents >= 0
      else invoice_id is not null and num_nonnulls(from_seq, through_seq) = 0 and total_cents < 0
    end),
  constraint invoices_add_up check (
    price_attos + debt_attos + carried_in_attos = total_cents * 10000000000000000::numeric + carried_attos),
  constraint invoices_plane_known check (plane in ('live', 'test')),
  constraint invoices_period_whole check (period_start < period_end)
);
create index invoices_by_user on invoices (app_id, user_id, issued_at);
create index invoices_by_time on invoices (app_id, issued_at, id);
create index invoices_by_invoice on invoices (app_id, invoice_id) where invoice_id is not null;
create unique index invoices_voided_once on invoices (app_id, invoice_id) where reason = 'void';
create trigger invoices_append_only before update or delete on invoices
  for each row execute function refuse_rewrite();

-- The lines of an invoice add up to its price and debt.
create table invoice_lines (
  app_id         uuid          not null,
  user_id        uuid          not null,
  invoice_id     uuid          not null,
  position       integer       not null,
  kind           text          not null,
  description    text          not null,
  plan_id        uuid,
  pipeline       text,
  model_id       text,
  -- On an owner's invoice: the app whose tickets were charged.
  charged_app_id uuid,
  tickets        bigint,
  -- Units of an overage line.
  units          numeric(38,0),
  amount_attos   numeric(38,0) not null,
  period_start   timestamptz   not null,
  period_end     timestamptz   not null,
  constraint invoice_lines_pk primary key (app_id, invoice_id, position),
  constraint invoice_lines_invoice foreign key (app_id, invoice_id) references invoices (app_id, id) on delete cascade,
  constraint invoice_lines_kind_known check (kind in ('subscription', 'usage', 'overage', 'proration', 'other')),
  constraint invoice_lines_position_positive check (position > 0)
);
-- A period's price is charged once.
create unique index invoice_lines_period_once on invoice_lines (app_id, user_id, period_start) where kind = 'subscription';
create index invoice_lines_overage on invoice_lines (app_id, user_id, period_start) where kind = 'overage';
create trigger invoice_lines_append_only before update or delete on invoice_lines
  for each row execute function refuse_rewrite();

alter table payments
  -- The invoice that it pays; null for a top-up.
  add column invoice_id uuid,
  add constraint payments_invoice foreign key (app_id, invoice_id) references invoices (app_id, id) on delete cascade,
  add constraint payments_invoice_named check (
    case purpose when 'top_up' then invoice_id is null when 'invoice' then invoice_id is not null else true end) not valid;
create unique index payments_pay_once on payments (app_id, invoice_id) where invoice_id is not null;
