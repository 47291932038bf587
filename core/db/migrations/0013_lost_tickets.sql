-- What never came. Looking at a session ends when its holes have settled: each is filled, or lost.
alter table ticket_sessions
  -- Its holes have changed since they last settled. True unless somebody knows better, so that no session is forgotten.
  add column watched      boolean       not null default false,
  -- Lost, forked or late in part: what people ask for, and few.
  add column irregular    boolean       not null default false,
  -- The holes that are lost; `lost_count` is their number.
  add column lost         int8multirange not null default '{}',
  -- A session with too many holes keeps, below this sequence number, only the count of them.
  add column closed_below bigint        not null default 0,
  add column closed_count bigint        not null default 0;
alter table ticket_sessions alter column watched set default true;
update ticket_sessions
set watched = gapped, irregular = replayed_count > 0 or late_count > 0
where gapped or replayed_count > 0 or late_count > 0;
alter table ticket_sessions add constraint ticket_sessions_loss check (
  lost_count >= 0 and closed_below >= 0 and closed_count >= 0);

-- Columns of an index, and of its condition, forbid updating a row in place: these change a few times in a session's life.
drop index ticket_sessions_gapped;
create index ticket_sessions_watched on ticket_sessions (app_id, user_id, session_id) where watched;
create index ticket_sessions_irregular on ticket_sessions (app_id, started_at, user_id, session_id) where irregular;
create index ticket_sessions_irregular_by_start on ticket_sessions (started_at) where irregular;

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
