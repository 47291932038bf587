-- Changes from owner_rollup to merchant. The overage that users had until then was the owner's: ledger entries of the kind
-- `payment` with this id as their cause take it out of the users' debts (docs/ledger.md, "Entries").
create table billing_mode_changes (
  app_id       uuid        not null references apps (id),
  id           uuid        not null,
  -- The entries are booked page by page from this time on, before the mode changes.
  requested_at timestamptz not null,
  constraint billing_mode_changes_pk primary key (app_id, id)
);
create trigger billing_mode_changes_append_only before update or delete on billing_mode_changes
  for each row execute function refuse_rewrite();
