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
