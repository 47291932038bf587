-- Outgoing webhooks: endpoints of apps, their signing secrets, and one row per event and endpoint (docs/webhooks.md).

create table webhook_endpoints (
  app_id          uuid        not null references apps (id) on delete cascade,
  id              uuid        not null,
  url             text        not null,
  description     text        not null,
  -- Empty for all types.
  event_types     text[]      not null,
  status          text        not null,
  disabled_reason text,
  created_at      timestamptz not null,
  updated_at      timestamptz not null,
  -- When the next delivery is due; null if none waits.
  due_at          timestamptz,
  -- Until then one core delivers to the endpoint. If it dies, another takes the endpoint at that time.
  leased_until    timestamptz,
  -- Failed attempts since the last success, and the time of the first of them.
  failures        integer     not null default 0,
  failing_since   timestamptz,
  constraint webhook_endpoints_pk primary key (app_id, id),
  constraint webhook_endpoints_status check (status in ('active', 'disabled')),
  constraint webhook_endpoints_reason check (
    (disabled_reason is null) = (status = 'active')
    and disabled_reason in ('requested', 'gone', 'failing', 'backlog')),
  constraint webhook_endpoints_failing check ((failures = 0) = (failing_since is null))
);
create index webhook_endpoints_due on webhook_endpoints (due_at) where status = 'active' and due_at is not null;

create table webhook_secrets (
  app_id        uuid        not null,
  endpoint_id   uuid        not null,
  id            uuid        not null,
  signing       text        not null,
  sealed_secret bytea       not null,
  -- Of an Ed25519 key.
  public_key    text,
  created_at    timestamptz not null,
  -- Set when a newer secret replaces it.
  ends_at       timestamptz,
  constraint webhook_secrets_pk primary key (app_id, endpoint_id, id),
  constraint webhook_secrets_of_endpoint foreign key (app_id, endpoint_id)
    references webhook_endpoints (app_id, id) on delete cascade,
  constraint webhook_secrets_signing check (signing in ('hmac', 'ed25519')),
  constraint webhook_secrets_public_key check ((public_key is not null) = (signing = 'ed25519'))
);

create table webhook_deliveries (
  app_id           uuid        not null,
  endpoint_id      uuid        not null,
  id               uuid        not null,
  event_id         text        not null,
  event_type       text        not null,
  -- The request's body, the same in every attempt.
  body             text        not null,
  status           text        not null,
  attempts         integer     not null default 0,
  -- When the next attempt is due; null when none follows. A claim moves it ahead, like `due_at` of the outbox.
  due_at           timestamptz,
  created_at       timestamptz not null,
  -- When the first attempt was due, or the first after a replay.
  started_at       timestamptz not null,
  last_attempt_at  timestamptz,
  last_status      integer,
  last_duration_ms integer,
  last_error       text,
  last_response    text,
  constraint webhook_deliveries_pk primary key (app_id, id),
  constraint webhook_deliveries_once unique (app_id, endpoint_id, event_id),
  constraint webhook_deliveries_of_endpoint foreign key (app_id, endpoint_id)
    references webhook_endpoints (app_id, id) on delete cascade,
  constraint webhook_deliveries_status check (status in ('pending', 'delivered', 'failed')),
  constraint webhook_deliveries_due check ((due_at is not null) = (status = 'pending')),
  constraint webhook_deliveries_body_size check (octet_length(body) <= 65536),
  constraint webhook_deliveries_response_size check (octet_length(last_response) <= 4096)
);
create index webhook_deliveries_due on webhook_deliveries (app_id, endpoint_id, due_at, id) where status = 'pending';
create index webhook_deliveries_by_endpoint on webhook_deliveries (app_id, endpoint_id, created_at desc, id desc);
create index webhook_deliveries_overdue on webhook_deliveries (started_at) where status = 'pending';
create index webhook_deliveries_by_age on webhook_deliveries (created_at);
