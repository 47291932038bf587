-- What the signer's events become. Fees are wei; costs are atto-dollars, fixed once.

create table rates (
  id                bigint        not null generated always as identity,
  usd_attos_per_eth numeric(38,0) not null,
  source            text          not null,
  observed_at       timestamptz   not null,
  created_at        timestamptz   not null default now(),
  constraint rates_pk primary key (id),
  constraint rates_positive check (usd_attos_per_eth > 0)
);
create index rates_by_time on rates (observed_at desc, id desc);
create trigger rates_append_only before update or delete on rates for each row execute function refuse_rewrite();

-- Every event that counted, by envelope id: the one place where a repeat is recognised.
create table envelopes (
  event_id    text        not null collate "C",
  digest      bytea       not null,
  constraint envelopes_pk primary key (event_id)
) partition by hash (event_id);
create table envelopes_0 partition of envelopes for values with (modulus 8, remainder 0);
create table envelopes_1 partition of envelopes for values with (modulus 8, remainder 1);
create table envelopes_2 partition of envelopes for values with (modulus 8, remainder 2);
create table envelopes_3 partition of envelopes for values with (modulus 8, remainder 3);
create table envelopes_4 partition of envelopes for values with (modulus 8, remainder 4);
create table envelopes_5 partition of envelopes for values with (modulus 8, remainder 5);
create table envelopes_6 partition of envelopes for values with (modulus 8, remainder 6);
create table envelopes_7 partition of envelopes for values with (modulus 8, remainder 7);

create table tickets (
  app_id          uuid          not null,
  user_id         uuid          not null,
  event_id        text          not null collate "C",
  signed_at       timestamptz   not null,
  session_id      text          not null,
  sequence_number numeric(20,0) not null,
  request_id      text          not null,
  manifest_id     text          not null,
  app_name        text          not null,
  pipeline        text          not null,
  model_id        text          not null,
  fee_wei         numeric(78,0) not null,
  rate_id         bigint,
  cost_attos      numeric(38,0),
  charge_id       uuid,
  billable_secs   numeric       not null,
  pixels          numeric(20,0) not null,
  num_tickets     integer       not null,
  orch_address    text          not null,
  orch_url        text          not null,
  replayed        boolean       not null,
  emitted_at      timestamptz,
  received_at     timestamptz   not null,
  constraint tickets_pk primary key (app_id, session_id, sequence_number, signed_at, event_id),
  constraint tickets_fee_not_negative check (fee_wei >= 0),
  constraint tickets_priced_whole check (
    (rate_id is null) = (cost_attos is null) and (rate_id is null) = (charge_id is null))
) partition by range (signed_at);

-- A ticket is priced once, from its own time; nothing rewrites it.
create function refuse_ticket_rewrite() returns trigger language plpgsql as $$
begin
  if old.cost_attos is not null or tg_op = 'DELETE'
     or (new.app_id, new.user_id, new.event_id, new.signed_at, new.session_id, new.sequence_number, new.fee_wei)
        is distinct from
        (old.app_id, old.user_id, old.event_id, old.signed_at, old.session_id, old.sequence_number, old.fee_wei) then
    raise exception 'a ticket is priced once and never rewritten' using errcode = 'check_violation';
  end if;
  return new;
end $$;
create trigger tickets_append_only before update or delete on tickets
  for each row execute function refuse_ticket_rewrite();

-- Tickets that wait for a rate, oldest first; empty in normal times.
create index tickets_unpriced on tickets (signed_at) where cost_attos is null;

-- Sums in the same transaction as their tickets. unpriced_count falls as rates arrive.
create table usage_hourly (
  app_id         uuid          not null,
  user_id        uuid          not null,
  hour           timestamptz   not null,
  pipeline       text          not null,
  model_id       text          not null,
  ticket_count   bigint        not null,
  unpriced_count bigint        not null,
  fee_wei        numeric(78,0) not null,
  cost_attos     numeric(38,0) not null,
  billable_secs  numeric       not null,
  pixels         numeric(38,0) not null,
  constraint usage_hourly_pk primary key (app_id, user_id, hour, pipeline, model_id)
) with (fillfactor = 70);
create index usage_hourly_by_app on usage_hourly (app_id, hour);

-- Events that could not become tickets, with their bytes.
create table quarantine (
  id          uuid        not null,
  event_id    text        collate "C",
  reason      text        not null,
  detail      text        not null,
  app_id      uuid,
  auth_id     text,
  fee_wei     numeric(78,0),
  bytes       bytea       not null,
  source      text        not null,
  partition   integer     not null,
  stream_offset bigint,
  received_at timestamptz not null,
  constraint quarantine_pk primary key (id)
);
create index quarantine_by_age on quarantine (received_at, id);
-- The same bad bytes, redelivered, are one row.
create unique index quarantine_position_unique on quarantine (source, partition, stream_offset) where stream_offset is not null;

-- How far each stream was taken, in the same transaction as what it became. The four counters add up to the offsets.
create table stream_offsets (
  source      text    not null,
  partition   integer not null,
  next_offset bigint  not null,
  tickets     bigint  not null,
  duplicates  bigint  not null,
  ignored     bigint  not null,
  quarantined bigint  not null,
  constraint stream_offsets_pk primary key (source, partition)
);
