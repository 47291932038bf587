-- Credentials by hash, and the issuer's signing keys.

create table api_keys (
  app_id         uuid        not null,
  id             uuid        not null,
  user_id        uuid        not null,
  secret_hash    bytea       not null,
  pepper_id      text        not null,
  label          text,
  prefix         text        not null,
  status         text        not null,
  created_at     timestamptz not null,
  last_used_at   timestamptz,
  revoked_at     timestamptz,
  revoked_reason text,
  constraint api_keys_pk primary key (app_id, id),
  constraint api_keys_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint api_keys_status_known check (status in ('active', 'revoked')),
  constraint api_keys_revoked_once check ((status = 'revoked') = (revoked_at is not null))
);
-- The hash is what a credential is looked up by.
create unique index api_keys_hash_unique on api_keys (secret_hash);
create index api_keys_by_user on api_keys (app_id, user_id, created_at, id);

create table signing_keys (
  kid            text        not null,
  alg            text        not null,
  public_jwk     jsonb       not null,
  sealed_private bytea       not null,
  status         text        not null,
  created_at     timestamptz not null,
  retire_at      timestamptz,
  constraint signing_keys_pk primary key (kid),
  constraint signing_keys_status_known check (status in ('next', 'active', 'retired'))
);
create unique index signing_keys_one_active on signing_keys (status) where status = 'active';
create unique index signing_keys_one_next on signing_keys (status) where status = 'next';

create table idempotency_keys (
  scope        text        not null,
  key          text        not null,
  request_hash bytea       not null,
  sealed_reply bytea       not null,
  created_at   timestamptz not null,
  constraint idempotency_keys_pk primary key (scope, key)
);
create index idempotency_keys_by_age on idempotency_keys (created_at);
