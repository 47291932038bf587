-- API keys by hash.

create table api_keys (
  app_id          uuid        not null,
  id              uuid        not null,
  user_id         uuid,
  secret_hash     bytea       not null,
  pepper_id       text        not null,
  label           text,
  prefix          text        not null,
  status          text        not null,
  created_at      timestamptz not null,
  last_used_at    timestamptz,
  revoked_at      timestamptz,
  revoked_reason  text,
  subscription_id uuid,
  -- Ancestors of the key, ids as in grant_ends.
  grants          text[]      not null default '{}',
  refused_at      timestamptz,
  constraint api_keys_pk primary key (app_id, id),
  constraint api_keys_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint api_keys_status_known check (status in ('active', 'revoked')),
  constraint api_keys_revoked_once check ((status = 'revoked') = (revoked_at is not null)),
  constraint api_keys_app foreign key (app_id) references apps (id) on delete cascade,
  constraint api_keys_subscription foreign key (app_id, subscription_id) references subscriptions (app_id, id)
);
-- Credentials are looked up by their hash.
create unique index api_keys_hash_unique on api_keys (secret_hash);
create index api_keys_by_user on api_keys (app_id, user_id, created_at, id);
create index api_keys_by_grant on api_keys using gin (grants) where status = 'active';
