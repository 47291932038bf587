-- What the signer's events become. Fees are wei; costs are atto-dollars, fixed once.

-- A ticket is priced once, at its own time, and never rewritten.
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

-- Every counted event by envelope id, of all months: the only place that recognises a repeat. The key is the id if it is
-- a canonical UUID, else 128 bits of its SHA-256. The digest is 128 bits of the event's SHA-256, id included, so that two
-- ids with one key can be distinguished. Type uuid takes half the space of text and bytea. Hash partitions made inserts
-- no faster (measured).
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
  -- The signer's own figure, stored for comparison. The charge follows from the wei and our rate.
  stated_usd         numeric(48,18),
  -- The user's plan version (plan_versions.id). Null without a price, and for prices that were fixed elsewhere.
  terms_id           bigint,
  -- Charge of the user; null if equal to the network cost.
  retail_attos       numeric(38,0),
  -- The platform's cut in USD and in wei; null without a cut.
  platform_fee_attos numeric(38,0),
  platform_fee_wei   numeric(78,0),
  -- Of a test app's ticket: how far the app's clock was ahead at signing. `signed_at` is by the app's clock; the signer's
  -- time is `signed_at` minus this. Null means not ahead.
  clock_ms           bigint,
  constraint tickets_fee_not_negative check (fee_wei >= 0),
  constraint tickets_priced_whole check (
    (rate_id is null) = (cost_attos is null) and (rate_id is null) = (charge_id is null)),
  constraint tickets_pk primary key (app_id, user_id, signed_at, event_id),
  constraint tickets_sold_priced check (
    cost_attos is not null or num_nonnulls(terms_id, retail_attos, platform_fee_attos, platform_fee_wei) = 0) not valid,
  constraint tickets_clock_ahead check (clock_ms > 0) not valid
) partition by range (signed_at);
-- Tickets without a rate, oldest first; usually empty.
create index tickets_unpriced on tickets (signed_at) where cost_attos is null;
create index tickets_unpriced_by_user on tickets (app_id, user_id) where cost_attos is null;
-- For usage of parts of hours. Tickets arrive nearly in time order, so a block range index suffices. With a btree the
-- planner avoids the primary key when it looks for replays (measured: ingest ten times slower).
create index tickets_by_time on tickets using brin (signed_at) with (pages_per_range = 16, autosummarize = on);
-- For the tickets of one gateway request. A btree costs ingest a tenth; this index excludes all but one in a thousand of
-- the page ranges without the request.
create index tickets_by_request on tickets using brin (
  request_id text_bloom_ops(n_distinct_per_range = 700, false_positive_rate = 0.001))
  with (pages_per_range = 32, autosummarize = on);
-- For the ticket of an event id, and the tickets of a charge. Block range indexes like tickets_by_request: btrees would
-- cost ingest more than these queries are worth.
create index tickets_by_event on tickets using brin (
  event_id text_bloom_ops(n_distinct_per_range = 700, false_positive_rate = 0.001))
  with (pages_per_range = 32, autosummarize = on);
create trigger tickets_append_only before update or delete on tickets
  for each row execute function refuse_ticket_rewrite();

-- Sums of each signer session, written with its tickets.
create table ticket_sessions (
  app_id             uuid           not null,
  user_id            uuid           not null,
  session_id         text           not null collate "C",
  -- Of the first ticket.
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
  -- Tickets with a known sequence number: the state was replayed, or two sessions share a 32-bit id.
  replayed_count     bigint         not null,
  -- Tickets that arrived long after they were signed.
  late_count         bigint         not null,
  -- Received sequence numbers. A session begins at 0; each hole is a missing ticket.
  seen               int8multirange not null,
  gapped             boolean        not null,
  -- Holes at the last check. Those that remain after the grace time are lost.
  suspected          int8multirange not null default '{}',
  suspected_at       timestamptz,
  lost_count         bigint         not null default 0,
  -- True if holes may have changed since they last settled (each filled or lost). The default makes sure that no session
  -- is forgotten.
  watched            boolean        not null default true,
  -- True if tickets are lost, forked or late; few sessions are.
  irregular          boolean        not null default false,
  -- Lost holes; `lost_count` is their number.
  lost               int8multirange not null default '{}',
  -- Below this sequence number, a session with too many holes keeps only their count.
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
-- For the sessions of an app, newest first.
create index ticket_sessions_by_app on ticket_sessions (app_id, started_at, session_id, user_id);
-- For the sessions of one manifest. A ticket without a manifest uses its session id.
create index ticket_sessions_by_manifest on ticket_sessions (
  app_id, (coalesce(nullif(manifest_id, '') collate "C", session_id)), started_at);
create index ticket_sessions_watched on ticket_sessions (app_id, user_id, session_id) where watched;
create index ticket_sessions_irregular on ticket_sessions (app_id, started_at, user_id, session_id) where irregular;
create index ticket_sessions_irregular_by_start on ticket_sessions (started_at) where irregular;

-- Hourly sums, written with their tickets. unpriced_count falls when rates arrive.
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
  -- Retail minus network cost.
  markup_attos       numeric(38,0) not null default 0,
  platform_fee_attos numeric(38,0) not null default 0,
  platform_fee_wei   numeric(78,0) not null default 0,
  constraint usage_hourly_pk primary key (app_id, user_id, hour, pipeline, model_id)
) with (fillfactor = 70);
create index usage_hourly_by_app on usage_hourly (app_id, hour);

-- Network cost of booked tickets by app, owner and real UTC day of booking. `owner_id` is the account that owned the app,
-- or the app itself without an owner. Platform-owned apps have no rows.
create table network_costs (
  app_id     uuid          not null references apps (id) on delete cascade,
  owner_id   uuid          not null,
  day        date          not null,
  cost_attos numeric(38,0) not null,
  constraint network_costs_pk primary key (app_id, day, owner_id)
) with (fillfactor = 70);
create index network_costs_by_owner on network_costs (owner_id, day);

-- Events that could not become tickets, with their bytes (at most 1 MiB).
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
  -- What happened to the event. Its bytes never change.
  status          text          not null default 'open',
  resolved_at     timestamptz,
  resolved_by     text,
  resolution      text,
  -- The user that an operator attributed the event to.
  attributed_to   text,
  -- The ticket that the event became, possibly under a derived id.
  ticket_event_id text          collate "C",
  constraint quarantine_pk primary key (id),
  -- The same bytes, delivered again, are one row, so that money in quarantine counts once.
  constraint quarantine_digest_unique unique (digest),
  constraint quarantine_status_known check (status in ('open', 'redriven', 'discarded')),
  constraint quarantine_resolved_whole check (
    (status = 'open') = (resolved_at is null) and (status = 'open') = (resolved_by is null)),
  constraint quarantine_redriven_to_a_ticket check ((status = 'redriven') = (ticket_event_id is not null)),
  constraint quarantine_discarded_for_a_reason check (status <> 'discarded' or resolution <> '')
) with (fillfactor = 90);
create index quarantine_by_age on quarantine (received_at, id);
create index quarantine_open on quarantine (received_at, id) where status = 'open';

-- Position in each stream, written with its results. Every offset is accounted for; `missing` are offsets without a
-- record (transaction markers, or records that the broker had deleted).
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

-- Progress of work for the metering backend: the last user sent, the last reconciliation and its result.
create table backend_marks (
  name       text        not null,
  reached_at timestamptz not null,
  result     jsonb,
  constraint backend_marks_pk primary key (name)
);

-- Irregular sessions. A signer counts from 0 by one; a jump of more than a million is no signer's number and is left out.
-- A lost ticket is estimated at the average cost of its session's priced tickets, rounded up to a whole micro, so that
-- rows add up to totals.
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
