-- What makes the books provable: each entry says all that it changed, and is chained to the one before.

alter table ledger_entries
  -- By how much it changed what remains of which credits. Null for a grant and an expiry, whose credit is the cause, and
  -- for entries older than the columns.
  add column credit_ids      uuid[],
  add column credit_attos    numeric(38,0)[],
  -- Of a charge: what counts as consumption of the period that was running.
  add column period_attos    numeric(38,0) not null default 0,
  -- By how much the number of tickets that wait for a price changed.
  add column unpriced_change integer       not null default 0,
  -- Of a charge: when the rates were read that priced its tickets. Null where their prices were fixed elsewhere.
  add column rates_known_at  timestamptz,
  -- Of a charge: SHA-256 of its tickets (docs/ledger.md, "Chain").
  add column tickets_hash    bytea,
  add column hash            bytea,
  add constraint ledger_entries_credits_whole check (
    (credit_ids is null) = (credit_attos is null)
    and coalesce(cardinality(credit_ids), 0) = coalesce(cardinality(credit_attos), 0));
alter table ledger_entries drop constraint ledger_entries_kind_known;
alter table ledger_entries add constraint ledger_entries_kind_known
  check (kind in ('grant', 'charge', 'expire', 'adjustment', 'unpriced'));
alter table ledger_entries drop constraint ledger_entries_sign;
alter table ledger_entries add constraint ledger_entries_sign check (
  case kind when 'grant' then amount_attos > 0 when 'adjustment' then true when 'unpriced' then amount_attos = 0
  else amount_attos <= 0 end);

alter table balances
  -- No entry is booked before it: a past balance, once answered, stays as it was.
  add column booked_through timestamptz not null default 'epoch',
  -- The hash of the last entry.
  add column head_hash      bytea,
  -- Entries up to this number are older than the chain, or were written by a core that did not know it.
  add column unchained_seq  bigint      not null default 0;
update balances set booked_through = updated_at, unchained_seq = seq;

-- A core of before goes on writing entries without a hash. `after`, and only then, costs the others nothing.
create function note_unchained() returns trigger language plpgsql as $$
begin
  update balances
  set unchained_seq = new.seq, head_hash = null
  where app_id = new.app_id and user_id = new.user_id;
  return null;
end $$;
create trigger ledger_entries_unchained after insert on ledger_entries
  for each row when (new.hash is null) execute function note_unchained();

-- What was held when a debit was made: no debit takes it.
alter table adjustments add column held_attos numeric(38,0);

-- The periods that an account has entered, with the terms that it found.
create table periods (
  app_id         uuid          not null,
  user_id        uuid          not null,
  starts_at      timestamptz   not null,
  ends_at        timestamptz   not null,
  counts_from    timestamptz   not null,
  entered_at     timestamptz   not null,
  -- The last entry of before.
  after_seq      bigint        not null,
  plan_id        uuid          not null,
  plan_version   integer       not null,
  included_attos numeric(38,0) not null,
  constraint periods_pk primary key (app_id, user_id, starts_at),
  constraint periods_whole check (starts_at < ends_at and included_attos >= 0)
);
-- Of what was entered before only the running periods are known.
insert into periods (app_id, user_id, starts_at, ends_at, counts_from, entered_at, after_seq, plan_id, plan_version,
                     included_attos)
select b.app_id, b.user_id, b.period_start, b.period_end, b.period_counts_from, greatest(b.period_start, u.created_at), 0,
       s.plan_id, v.version, v.included_attos
from balances b
join end_users u on u.app_id = b.app_id and u.id = b.user_id
join subscriptions s on s.app_id = b.app_id and s.user_id = b.user_id
join lateral (
  select version, included_attos
  from plan_versions
  where app_id = s.app_id and plan_id = s.plan_id
  order by version desc
  limit 1) v on true
where b.period_start < b.period_end;
create trigger periods_append_only before update or delete on periods
  for each row execute function refuse_rewrite();

-- Heads of all accounts of an app at an instant, each chained to the one before. Logged and exported, they show a
-- rewrite that is consistent in itself.
create table checkpoints (
  app_id     uuid          not null,
  number     bigint        not null,
  created_at timestamptz   not null,
  -- Which entries it covers: those that this snapshot saw, booked up to this instant.
  snapshot   pg_snapshot   not null,
  through    timestamptz   not null,
  users      bigint        not null,
  entries    bigint        not null,
  -- SHA-256 over the accounts' heads, and over that with the head of before.
  root       bytea         not null,
  head       bytea         not null,
  constraint checkpoints_pk primary key (app_id, number)
);
create trigger checkpoints_append_only before update or delete on checkpoints
  for each row execute function refuse_rewrite();
