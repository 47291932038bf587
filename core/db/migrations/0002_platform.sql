-- State that modules share: audit, idempotency, outbox, ends of credentials, test clocks.

-- Actions and their actors. No foreign key, so that the log survives the app.
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
-- For the export of the whole log, and the deletion after AUDIT_RETENTION_DAYS.
create index audit_log_by_time on audit_log (created_at, id);
-- Operators' entries belong to no app; their details name it.
create index audit_log_by_client on audit_log ((details ->> 'clientId'), created_at) where app_id is null;

create table idempotency_keys (
  scope        text        not null,
  key          text        not null,
  request_hash bytea       not null,
  sealed_reply bytea,
  created_at   timestamptz not null,
  -- A reply with a secret is kept for a day. The row then remains as proof that its key was used.
  holds_secret boolean     not null default false,
  constraint idempotency_keys_pk primary key (scope, key),
  constraint idempotency_keys_only_secrets_go check (sealed_reply is not null or holds_secret)
);
create index idempotency_keys_by_age on idempotency_keys (created_at);
create index idempotency_keys_with_secret on idempotency_keys (created_at)
  where holds_secret and sealed_reply is not null;

-- Running requests with an Idempotency-Key that change another system before their reply is stored, for longer than a
-- transaction may hold a lock. The claim of a dead process expires.
create table idempotency_claims (
  scope         text        not null,
  key           text        not null,
  claim         uuid        not null,
  claimed_until timestamptz not null,
  constraint idempotency_claims_pk primary key (scope, key)
);

-- Messages for other systems: written in the transaction of their cause, deleted after delivery. Tickets are batched, so
-- that ingest writes one row for a thousand.
create table outbox (
  id           bigint      not null generated always as identity,
  kind         text        not null,
  payload      bytea       not null,
  item_count   integer     not null,
  -- Failures caused by the row itself.
  attempts     integer     not null default 0,
  last_error   text,
  -- The process that takes a row moves this ahead. If it dies, another takes the row at that time.
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

-- Ended ancestors of credentials: logins, keys, apps (docs/revocation.md).
create table grant_ends (
  id          text        not null,
  -- Ends credentials issued before this instant; `infinity` ends all of them.
  ends_before timestamptz not null default 'infinity',
  cause       text        not null default 'token_revoked',
  ended_at    timestamptz not null default now(),
  -- When the last possible descendant has expired; null keeps the row.
  expires_at  timestamptz,
  constraint grant_ends_pk primary key (id)
);
create index grant_ends_by_expiry on grant_ends (expires_at) where expires_at is not null;
create index grant_ends_by_time on grant_ends (ended_at);

-- Returns the ids that end a credential issued at `issued_at`. Every check of a credential uses this rule.
create function ended_grants(ids text[], issued_at timestamptz) returns text[]
language sql stable parallel safe
as $$ select array(select id from grant_ends where id = any(ids) and ends_before > issued_at) $$;

-- How far a test app's clock is ahead of real time after `since`. A clock only moves ahead.
create table test_clock_moves (
  app_id   uuid        not null references apps (id) on delete cascade,
  since    timestamptz not null,
  ahead_ms bigint      not null,
  -- What was committed before the move, so that the day that the move ends is cut there (docs/test-clock.md).
  snapshot pg_snapshot default pg_current_snapshot(),
  constraint test_clock_moves_pk primary key (app_id, since),
  constraint test_clock_moves_forwards unique (app_id, ahead_ms),
  constraint test_clock_moves_ahead check (ahead_ms > 0)
);
create trigger test_clock_moves_append_only before update or delete on test_clock_moves
  for each row execute function refuse_rewrite();
