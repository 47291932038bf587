-- What the signer's events become. Fees are wei; costs are atto-dollars, fixed once.

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
  key    uuid not null,
  digest uuid not null,
  constraint envelopes_pk primary key (key)
);

create table tickets (
  app_id             uuid           not null,
  user_id            uuid           not null,
  event_id           text           not null collate "C",
  signed_at          timestamptz    not null,
  session_id         text           not null collate "C",
  sequence_number    bigint         not null,
  request_id         text           not null,
  manifest_id        text           not null,
  app_name           text           not null,
  pipeline           text           not null,
  model_id           text           not null,
  fee_wei            numeric(78,0)  not null,
  rate_id            bigint,
  cost_attos         numeric(38,0),
  charge_id          uuid,
  billable_secs      numeric        not null,
  pixels             numeric(20,0)  not null,
  num_tickets        integer        not null,
  orch_address       text           not null,
  orch_url           text           not null,
  replayed           boolean        not null,
  emitted_at         timestamptz,
  received_at        timestamptz    not null,
  -- What the signer itself says a ticket cost. Kept as it came, to be compared; a ticket is charged by its wei and our rate.
  stated_usd         numeric(48,18),
  -- The version of the plan that its user was on (plan_versions.id). Null without a price, for tickets from before this
  -- column, and for those whose prices were fixed elsewhere.
  terms_id           bigint,
  -- What its user is charged; null where it is the network cost.
  retail_attos       numeric(38,0),
  -- The platform's cut, in USD and in wei; null where there is none.
  platform_fee_attos numeric(38,0),
  platform_fee_wei   numeric(78,0),
  -- Of a ticket of a test app: by how much the app's clock was ahead when it was signed. `signed_at` is by the app's clock, so
  -- that everything that counts by time does; the signer's own time is `signed_at` less this. Null: not ahead.
  clock_ms           bigint,
  constraint tickets_fee_not_negative check (fee_wei >= 0),
  constraint tickets_priced_whole check (
    (rate_id is null) = (cost_attos is null) and (rate_id is null) = (charge_id is null)),
  constraint tickets_pk primary key (app_id, user_id, signed_at, event_id),
  constraint tickets_sold_priced check (
    cost_attos is not null or num_nonnulls(terms_id, retail_attos, platform_fee_attos, platform_fee_wei) = 0) not valid,
  constraint tickets_clock_ahead check (clock_ms > 0) not valid
) partition by range (signed_at);
-- Tickets that wait for a rate, oldest first; empty in normal times.
create index tickets_unpriced on tickets (signed_at) where cost_attos is null;
create index tickets_unpriced_by_user on tickets (app_id, user_id) where cost_attos is null;
-- Usage of a part of an hour. Tickets arrive nearly in time order, so a block range index is enough; a btree would
-- also tempt the planner away from the primary key when it looks for replays (measured: ten times slower ingest).
create index tickets_by_time on tickets using brin (signed_at) with (pages_per_range = 16, autosummarize = on);
-- The tickets of one gateway request. A btree would cost ingest a tenth; this one says of each range of pages whether
-- the request can be in it, and is wrong about one in a thousand.
create index tickets_by_request on tickets using brin (
  request_id text_bloom_ops(n_distinct_per_range = 700, false_positive_rate = 0.001))
  with (pages_per_range = 32, autosummarize = on);
-- The ticket of an event id, and the charge that a ticket names. They say of each range of pages whether the id can be in it, as
-- tickets_by_request does: a btree would cost ingest more than these questions are worth.
create index tickets_by_event on tickets using brin (
  event_id text_bloom_ops(n_distinct_per_range = 700, false_positive_rate = 0.001))
  with (pages_per_range = 32, autosummarize = on);
create trigger tickets_append_only before update or delete on tickets
  for each row execute function refuse_ticket_rewrite();

-- Sums of each signer session, in the same transaction as its tickets.
create table ticket_sessions (
  app_id             uuid           not null,
  user_id            uuid           not null,
  session_id         text           not null collate "C",
  -- Of the first ticket that came.
  manifest_id        text           not null,
  app_name           text           not null,
  pipeline           text           not null,
  model_id           text           not null,
  started_at         timestamptz    not null,
  last_at            timestamptz    not null,
  ticket_count       bigint         not null,
  unpriced_count     bigint         not null,
  fee_wei            numeric(78,0)  not null,
  cost_attos         numeric(38,0)  not null,
  billable_secs      numeric        not null,
  pixels             numeric(38,0)  not null,
  -- Tickets whose sequence number had come before: the signer's state was replayed, or two sessions share a 32-bit id.
  replayed_count     bigint         not null,
  -- Tickets that came long after they were signed.
  late_count         bigint         not null,
  -- The sequence numbers that came. A session begins at 0; every hole is a ticket that has not come.
  seen               int8multirange not null,
  gapped             boolean        not null,
  -- The holes as they were at the last look; those that are still there a grace time later are lost.
  suspected          int8multirange not null default '{}',
  suspected_at       timestamptz,
  lost_count         bigint         not null default 0,
  -- What never came. Looking at a session ends when its holes have settled: each is filled, or lost.
  -- Its holes have changed since they last settled. True unless somebody knows better, so that no session is forgotten.
  watched            boolean        not null default true,
  -- Lost, forked or late in part: what people ask for, and few.
  irregular          boolean        not null default false,
  -- The holes that are lost; `lost_count` is their number.
  lost               int8multirange not null default '{}',
  -- A session with too many holes keeps, below this sequence number, only the count of them.
  closed_below       bigint         not null default 0,
  closed_count       bigint         not null default 0,
  markup_attos       numeric(38,0)  not null default 0,
  platform_fee_attos numeric(38,0)  not null default 0,
  platform_fee_wei   numeric(78,0)  not null default 0,
  constraint ticket_sessions_pk primary key (app_id, user_id, session_id),
  constraint ticket_sessions_counts check (ticket_count >= unpriced_count and ticket_count > replayed_count),
  constraint ticket_sessions_loss check (
    lost_count >= 0 and closed_below >= 0 and closed_count >= 0)
) with (fillfactor = 70);
create index ticket_sessions_by_start on ticket_sessions (app_id, user_id, started_at, session_id);
-- Sessions of a whole app, the newest first.
create index ticket_sessions_by_app on ticket_sessions (app_id, started_at, session_id, user_id);
-- Sessions of one manifest; a ticket without one stands under its session.
create index ticket_sessions_by_manifest on ticket_sessions (
  app_id, (coalesce(nullif(manifest_id, '') collate "C", session_id)), started_at);
create index ticket_sessions_watched on ticket_sessions (app_id, user_id, session_id) where watched;
create index ticket_sessions_irregular on ticket_sessions (app_id, started_at, user_id, session_id) where irregular;
create index ticket_sessions_irregular_by_start on ticket_sessions (started_at) where irregular;

-- Sums in the same transaction as their tickets. unpriced_count falls as rates arrive.
create table usage_hourly (
  app_id             uuid          not null,
  user_id            uuid          not null,
  hour               timestamptz   not null,
  pipeline           text          not null,
  model_id           text          not null,
  ticket_count       bigint        not null,
  unpriced_count     bigint        not null,
  fee_wei            numeric(78,0) not null,
  cost_attos         numeric(38,0) not null,
  billable_secs      numeric       not null,
  pixels             numeric(38,0) not null,
  -- `markup` is retail less network cost, so that sums to which a core of before adds tickets at network price stay right.
  markup_attos       numeric(38,0) not null default 0,
  platform_fee_attos numeric(38,0) not null default 0,
  platform_fee_wei   numeric(78,0) not null default 0,
  constraint usage_hourly_pk primary key (app_id, user_id, hour, pipeline, model_id)
) with (fillfactor = 70);
create index usage_hourly_by_app on usage_hourly (app_id, hour);

-- The network cost of booked tickets by app, owner and UTC day of booking, by real time. `owner_id` is the account that owned
-- the app then, or the app itself where it had no owner. Without rows for platform-owned apps, and from this migration on.
create table network_costs (
  app_id     uuid          not null references apps (id) on delete cascade,
  owner_id   uuid          not null,
  day        date          not null,
  cost_attos numeric(38,0) not null,
  constraint network_costs_pk primary key (app_id, day, owner_id)
) with (fillfactor = 70);
create index network_costs_by_owner on network_costs (owner_id, day);

-- Events that could not become tickets, with their bytes (up to 1 MiB of them).
create table quarantine (
  id              uuid          not null,
  digest          bytea         not null,
  event_id        text          collate "C",
  reason          text          not null,
  detail          text          not null,
  auth_id         text,
  fee_wei         numeric(78,0),
  bytes           bytea         not null,
  byte_count      integer       not null,
  source          text          not null,
  partition       integer       not null,
  stream_offset   bigint,
  deliveries      bigint        not null,
  received_at     timestamptz   not null,
  -- What became of a quarantined event. Its bytes stay as they came.
  status          text          not null default 'open',
  resolved_at     timestamptz,
  resolved_by     text,
  resolution      text,
  -- Whom it was given to, when it named nobody that we know.
  attributed_to   text,
  -- The ticket that it became, which under a derived id is not its own.
  ticket_event_id text          collate "C",
  constraint quarantine_pk primary key (id),
  -- The same bad bytes, delivered again, are one row: money in quarantine is not counted twice.
  constraint quarantine_digest_unique unique (digest),
  constraint quarantine_status_known check (status in ('open', 'redriven', 'discarded')),
  constraint quarantine_resolved_whole check (
    (status = 'open') = (resolved_at is null) and (status = 'open') = (resolved_by is null)),
  constraint quarantine_redriven_to_a_ticket check ((status = 'redriven') = (ticket_event_id is not null)),
  constraint quarantine_discarded_for_a_reason check (status <> 'discarded' or resolution <> '')
) with (fillfactor = 90);
create index quarantine_by_age on quarantine (received_at, id);
create index quarantine_open on quarantine (received_at, id) where status = 'open';

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

-- How far work beside the metering backend has come: which users it was told of, when it was last reconciled and with
-- what result.
create table backend_marks (
  name       text        not null,
  reached_at timestamptz not null,
  result     jsonb,
  constraint backend_marks_pk primary key (name)
);

-- Sessions where something is irregular, with what that is. A signer counts from 0 by one: a jump of more than a million
-- is a number that no signer wrote, and must not drown the others. A lost ticket is taken to have cost what the priced
-- ones of its session cost on average; the estimate is rounded up to a whole micro, so that rows add up to totals.
create view session_losses as
select s.app_id, s.user_id, s.session_id, s.manifest_id, s.pipeline, s.model_id, s.started_at, s.last_at, s.ticket_count,
       s.replayed_count, s.late_count, s.lost, l.lost_tickets,
       case when l.priced > 0 then
         div(l.lost_tickets * s.cost_attos + l.priced * 1000000000000::numeric - 1, l.priced * 1000000000000::numeric)
       end as estimate_usd_micros
from ticket_sessions s
cross join lateral (
  select least(s.lost_count + s.closed_count, 1000000) as lost_tickets, s.ticket_count - s.unpriced_count as priced) l
where s.irregular;
