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

-- Every event that counted, by envelope id: the one place where a repeat is recognised, whichever month it is from.
-- The key is the id when that is a UUID in its canonical form and else 128 bits of its SHA-256; the digest is 128 bits
-- of the SHA-256 of the event, id included, so that two ids of one key could be told apart. As uuids both take half
-- the room of text and bytea.
-- One table, as hash partitions made inserts no faster (measured).
create table envelopes (
  key         uuid        not null,
  digest      uuid        not null,
  constraint envelopes_pk primary key (key)
);

create table tickets (
  app_id          uuid          not null,
  user_id         uuid          not null,
  event_id        text          not null collate "C",
  signed_at       timestamptz   not null,
  session_id      text          not null collate "C",
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
create index tickets_unpriced_by_user on tickets (app_id, user_id) where cost_attos is null;
-- Usage of a part of an hour. Tickets arrive nearly in time order, so a block range index is enough; a btree would
-- also tempt the planner away from the primary key when it looks for replays (measured: ten times slower ingest).
create index tickets_by_time on tickets using brin (signed_at) with (pages_per_range = 16, autosummarize = on);

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

-- Events that could not become tickets, with their bytes (up to 1 MiB of them).
create table quarantine (
  id          uuid        not null,
  digest      bytea       not null,
  event_id    text        collate "C",
  reason      text        not null,
  detail      text        not null,
  auth_id     text,
  fee_wei     numeric(78,0),
  bytes       bytea       not null,
  byte_count  integer     not null,
  source      text        not null,
  partition   integer     not null,
  stream_offset bigint,
  deliveries  bigint      not null,
  received_at timestamptz not null,
  constraint quarantine_pk primary key (id),
  -- The same bad bytes, delivered again, are one row: money in quarantine is not counted twice.
  constraint quarantine_digest_unique unique (digest)
) with (fillfactor = 90);
create index quarantine_by_age on quarantine (received_at, id);

-- How far each stream was taken, in the same transaction as what it became. Every offset is accounted for; `missing`
-- are offsets that carried no record (transaction markers, or records that the broker had already deleted).
create table stream_offsets (
  source       text    not null,
  partition    integer not null,
  first_offset bigint  not null,
  next_offset  bigint  not null,
  tickets      bigint  not null,
  duplicates   bigint  not null,
  ignored      bigint  not null,
  quarantined  bigint  not null,
  missing      bigint  not null,
  constraint stream_offsets_pk primary key (source, partition),
  constraint stream_offsets_add_up check (
    next_offset - first_offset = tickets + duplicates + ignored + quarantined + missing)
);
