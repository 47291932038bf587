-- State that modules share: audit, idempotency, outbox, ends of credentials, test clocks.

-- Who did what. No foreign key: the log survives the app.
create table audit_log (
  app_id         uuid,
  id             uuid        not null,
  actor          text        not null,
  action         text        not null,
  status         text        not null,
  correlation_id text,
  details        jsonb       not null,
  created_at     timestamptz not null,
  constraint audit_log_pk primary key (id)
);
create index audit_log_by_app on audit_log (app_id, created_at desc);
-- The export of the whole log, and the deletion of what is older than AUDIT_RETENTION_DAYS.
create index audit_log_by_time on audit_log (created_at, id);
-- What operators did to an app belongs to no app and names it.
create index audit_log_by_client on audit_log ((details ->> 'clientId'), created_at) where app_id is null;

create table idempotency_keys (
  scope        text        not null,
  key          text        not null,
  request_hash bytea       not null,
  sealed_reply bytea,
  created_at   timestamptz not null,
  -- A reply that holds a secret is kept for a day; then the row remains and says that its key was used.
  holds_secret boolean     not null default false,
  constraint idempotency_keys_pk primary key (scope, key),
  constraint idempotency_keys_only_secrets_go check (sealed_reply is not null or holds_secret)
);
create index idempotency_keys_by_age on idempotency_keys (created_at);
create index idempotency_keys_with_secret on idempotency_keys (created_at)
  where holds_secret and sealed_reply is not null;

-- Which requests with an Idempotency-Key run now that change something elsewhere before they have an answer here. The lock of a
-- transaction cannot hold others off so long. A claim whose process died is over by itself.
create table idempotency_claims (
  scope         text        not null,
  key           text        not null,
  claim         uuid        not null,
  claimed_until timestamptz not null,
  constraint idempotency_claims_pk primary key (scope, key)
);

-- What must reach another system: written in the transaction of its cause, removed when it has arrived. Tickets come
-- in batches, so that ingest writes a row for a thousand of them.
create table outbox (
  id           bigint      not null generated always as identity,
  kind         text        not null,
  payload      bytea       not null,
  item_count   integer     not null,
  -- Failures that were the row's own fault.
  attempts     integer     not null default 0,
  last_error   text,
  -- Whoever takes a row moves this ahead: when it dies, somebody else takes the row then.
  due_at       timestamptz not null,
  set_aside_at timestamptz,
  created_at   timestamptz not null,
  constraint outbox_pk primary key (id),
  constraint outbox_items_positive check (item_count > 0)
);
alter table outbox alter column payload set storage external;
create index outbox_due on outbox (kind, due_at, id) where set_aside_at is null;
create index outbox_by_age on outbox (created_at) where set_aside_at is null;
create index outbox_set_aside on outbox (set_aside_at, id) where set_aside_at is not null;

-- What a credential descends from, and which of those things have ended (docs/identity.md).
create table grant_ends (
  id          text        not null,
  -- Of what was issued before this instant; of everything for things that do not go on, such as a login.
  ends_before timestamptz not null default 'infinity',
  cause       text        not null default 'token_revoked',
  ended_at    timestamptz not null default now(),
  -- When the last credential that can descend from it is dead; null keeps the row.
  expires_at  timestamptz,
  constraint grant_ends_pk primary key (id)
);
create index grant_ends_by_expiry on grant_ends (expires_at) where expires_at is not null;
create index grant_ends_by_time on grant_ends (ended_at);

-- Those of `ids` that have ended for what was issued at `issued_at`: the one rule by which credentials are judged.
create function ended_grants(ids text[], issued_at timestamptz) returns text[]
language sql stable parallel safe
as $$ select array(select id from grant_ends where id = any(ids) and ends_before > issued_at) $$;

-- By how much an app's clock is ahead of real time after `since`. A clock only goes forwards.
create table test_clock_moves (
  app_id   uuid        not null references apps (id) on delete cascade,
  since    timestamptz not null,
  ahead_ms bigint      not null,
  -- The days of test apps end by their clocks (docs/test-clock.md). What was committed before a move, so that the day that the
  -- move ends is cut there; null for moves from before.
  snapshot pg_snapshot default pg_current_snapshot(),
  constraint test_clock_moves_pk primary key (app_id, since),
  constraint test_clock_moves_forwards unique (app_id, ahead_ms),
  constraint test_clock_moves_ahead check (ahead_ms > 0)
);
create trigger test_clock_moves_append_only before update or delete on test_clock_moves
  for each row execute function refuse_rewrite();
