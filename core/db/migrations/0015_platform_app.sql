-- The platform app and owner charges (docs/decisions/58.md, 59.md).

-- The app of which owners are end users, as `account:{accountId}`. Core inserts the row at its first start.
create table platform_app (
  is_row boolean not null default true,
  app_id uuid    not null references apps (id),
  constraint platform_app_pk primary key (is_row),
  constraint platform_app_one_row check (is_row)
);

alter table ledger_entries
  -- Of a user's charge that its app's owner also paid for: the owner's account user in the platform app, and the owner
  -- charge of the tickets.
  add column owner_user_id  uuid,
  add column owner_attos    numeric(38,0),
  -- Of an owner charge: the app whose tickets it covers. `cause_id` is the id of the users' charges.
  add column charged_app_id uuid,
  add constraint ledger_entries_owner_whole check (
    (owner_user_id is null) = (owner_attos is null)
    and (owner_user_id is null or (kind = 'charge' and charged_app_id is null and owner_attos >= 0))) not valid,
  add constraint ledger_entries_charged_app_of_charges check (charged_app_id is null or kind = 'charge') not valid;
-- A batch charges an owner once for each app.
create unique index ledger_entries_owner_once on ledger_entries (app_id, user_id, charged_app_id, cause_id)
  where charged_app_id is not null;
create index ledger_entries_by_charged_app on ledger_entries (charged_app_id, cause_id) where charged_app_id is not null;

-- The owner charge of the archived tickets.
alter table archived_charges add column owner_attos numeric(38,0) not null default 0;
