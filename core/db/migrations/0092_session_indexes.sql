-- Each call and each ticket changes last_at of its session. Without an index on it, the update writes no index (a HOT update).
drop index authorised_sessions_by_user;
drop index authorised_sessions_by_age;
create index authorised_sessions_by_age on authorised_sessions (started_at) where session_type not in ('live', 'lv2v');
