-- Tickets are read by user and time, so that is their key; sessions have rows of their own, which also tell what is
-- missing from them. A sequence number above 2^63 is no signer's.
alter table tickets alter column sequence_number type bigint;
alter table tickets drop constraint tickets_pk;
alter table tickets add constraint tickets_pk primary key (app_id, user_id, signed_at, event_id);

-- Sums of each signer session, in the same transaction as its tickets.
create table ticket_sessions (
  app_id         uuid           not null,
  user_id        uuid           not null,
  session_id     text           not null collate "C",
  -- Of the first ticket that came.
  manifest_id    text           not null,
  app_name       text           not null,
  pipeline       text           not null,
  model_id       text           not null,
  started_at     timestamptz    not null,
  last_at        timestamptz    not null,
  ticket_count   bigint         not null,
  unpriced_count bigint         not null,
  fee_wei        numeric(78,0)  not null,
  cost_attos     numeric(38,0)  not null,
  billable_secs  numeric        not null,
  pixels         numeric(38,0)  not null,
  -- Tickets whose sequence number had come before: the signer's state was replayed, or two sessions share a 32-bit id.
  replayed_count bigint         not null,
  -- Tickets that came long after they were signed.
  late_count     bigint         not null,
  -- The sequence numbers that came. A session begins at 0; every hole is a ticket that has not come.
  seen           int8multirange not null,
  gapped         boolean        not null,
  -- The holes as they were at the last look; those that are still there a grace time later are lost.
  suspected      int8multirange not null default '{}',
  suspected_at   timestamptz,
  lost_count     bigint         not null default 0,
  constraint ticket_sessions_pk primary key (app_id, user_id, session_id),
  constraint ticket_sessions_counts check (ticket_count >= unpriced_count and ticket_count > replayed_count)
) with (fillfactor = 70);
create index ticket_sessions_by_start on ticket_sessions (app_id, user_id, started_at, session_id);
create index ticket_sessions_gapped on ticket_sessions (app_id, started_at) where gapped;

insert into ticket_sessions (app_id, user_id, session_id, manifest_id, app_name, pipeline, model_id, started_at, last_at,
                             ticket_count, unpriced_count, fee_wei, cost_attos, billable_secs, pixels, replayed_count,
                             late_count, seen, gapped)
select app_id, user_id, session_id, min(manifest_id), min(app_name), min(pipeline), min(model_id), min(signed_at),
       max(signed_at), count(*), count(*) filter (where cost_attos is null), sum(fee_wei), coalesce(sum(cost_attos), 0),
       sum(billable_secs), sum(pixels), count(*) filter (where replayed), 0,
       range_agg(int8range(sequence_number, sequence_number + 1)),
       range_agg(int8range(sequence_number, sequence_number + 1))
         <> int8multirange(int8range(0, max(sequence_number) + 1))
from tickets
group by app_id, user_id, session_id;
