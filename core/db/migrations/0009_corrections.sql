-- What corrects the books: compensating entries, and quarantined events that were seen to.

-- A correction of a balance, with its reason and its author. Nothing is ever edited.
create table adjustments (
  app_id       uuid          not null,
  user_id      uuid          not null,
  id           uuid          not null,
  amount_attos numeric(38,0) not null,
  reason       text          not null,
  author       text          not null,
  -- The ticket that it corrects, where it corrects one.
  event_id     text          collate "C",
  created_at   timestamptz   not null,
  constraint adjustments_pk primary key (app_id, user_id, id),
  constraint adjustments_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint adjustments_amount_not_zero check (amount_attos <> 0),
  constraint adjustments_explained check (reason <> '' and author <> '')
);
create trigger adjustments_append_only before update or delete on adjustments
  for each row execute function refuse_rewrite();

-- Money that an adjustment gives is spent like a grant; it is none, and no figure of what was granted counts it.
alter table grants drop constraint grants_kind_known;
alter table grants add constraint grants_kind_known check (kind in ('included', 'grant', 'adjustment'));

alter table ledger_entries drop constraint ledger_entries_kind_known;
alter table ledger_entries add constraint ledger_entries_kind_known
  check (kind in ('grant', 'charge', 'expire', 'adjustment'));
alter table ledger_entries drop constraint ledger_entries_sign;
alter table ledger_entries add constraint ledger_entries_sign check (
  case kind when 'grant' then amount_attos > 0 when 'adjustment' then true else amount_attos <= 0 end);
-- A debit that no allowance covers is overage, too.
alter table ledger_entries drop constraint ledger_entries_overage_from_charges;
alter table ledger_entries add constraint ledger_entries_overage_from_spend check (
  overage_attos >= 0 and (overage_attos = 0 or kind = 'charge' or (kind = 'adjustment' and amount_attos <= 0)));

alter table balances add column adjusted_attos numeric(38,0) not null default 0;
alter table balances drop constraint balances_add_up;
alter table balances add constraint balances_add_up check (
  granted_attos + adjusted_attos = balance_attos + (consumed_attos - overage_attos) + expired_attos);

-- What became of a quarantined event. Its bytes stay as they came.
alter table quarantine add column status text not null default 'open';
alter table quarantine add column resolved_at timestamptz;
alter table quarantine add column resolved_by text;
alter table quarantine add column resolution text;
-- Whom it was given to, when it named nobody that we know.
alter table quarantine add column attributed_to text;
-- The ticket that it became, which under a derived id is not its own.
alter table quarantine add column ticket_event_id text collate "C";
alter table quarantine add constraint quarantine_status_known check (status in ('open', 'redriven', 'discarded'));
alter table quarantine add constraint quarantine_resolved_whole check (
  (status = 'open') = (resolved_at is null) and (status = 'open') = (resolved_by is null));
alter table quarantine add constraint quarantine_redriven_to_a_ticket check ((status = 'redriven') = (ticket_event_id is not null));
alter table quarantine add constraint quarantine_discarded_for_a_reason check (status <> 'discarded' or resolution <> '');
create index quarantine_open on quarantine (received_at, id) where status = 'open';
