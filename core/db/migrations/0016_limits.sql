-- Limits that owners set for a user or for a key, beside what counts toward them (docs/escrow.md). All of it changes under the
-- lock of the user's balance. Amounts are atto-dollars.
create table limits (
  app_id            uuid          not null,
  user_id           uuid          not null,
  -- The user itself, or one of its keys.
  subject_id        uuid          not null,
  key_id            uuid generated always as (nullif(subject_id, user_id)) stored,
  -- Null where there is no such limit.
  day_attos_max     numeric(38,0),
  session_attos_max numeric(38,0),
  minute_calls_max  integer,
  sessions_max      integer,
  -- [{"type": "live", "app": "", "maxWei": "1300"}]; an empty app is every one.
  price_ceilings    jsonb         not null,
  -- The UTC day and minute that the counts are of.
  day               date          not null,
  day_attos         numeric(38,0) not null default 0,
  minute            timestamptz   not null,
  minute_calls      integer       not null default 0,
  updated_at        timestamptz   not null,
  constraint limits_pk primary key (app_id, user_id, subject_id),
  constraint limits_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint limits_key foreign key (app_id, key_id) references api_keys (app_id, id) on delete cascade,
  constraint limits_day_positive check (day_attos_max > 0),
  constraint limits_session_positive check (session_attos_max > 0),
  constraint limits_calls_positive check (minute_calls_max > 0),
  constraint limits_sessions_positive check (sessions_max > 0),
  constraint limits_counts_not_negative check (day_attos >= 0 and minute_calls >= 0)
) with (fillfactor = 70);
-- For the cascade.
create index limits_by_key on limits (app_id, key_id) where key_id is not null;

create table limit_sessions (
  app_id       uuid          not null,
  user_id      uuid          not null,
  subject_id   uuid          not null,
  session_id   text          not null collate "C",
  spent_attos  numeric(38,0) not null,
  last_call_at timestamptz   not null,
  constraint limit_sessions_pk primary key (app_id, user_id, subject_id, session_id),
  constraint limit_sessions_limits foreign key (app_id, user_id, subject_id)
    references limits (app_id, user_id, subject_id) on delete cascade,
  constraint limit_sessions_spent_not_negative check (spent_attos >= 0)
) with (fillfactor = 70);
create index limit_sessions_by_call on limit_sessions (app_id, user_id, subject_id, last_call_at);
create index limit_sessions_by_age on limit_sessions (last_call_at);
