-- The issuer: signing keys, logins, devices, sessions.

create table signing_keys (
  kid            text        not null,
  alg            text        not null,
  public_jwk     jsonb       not null,
  sealed_private bytea       not null,
  status         text        not null,
  created_at     timestamptz not null,
  retire_at      timestamptz,
  -- Start of signing, from which the rotation schedule counts.
  activated_at   timestamptz,
  constraint signing_keys_pk primary key (kid),
  constraint signing_keys_status_known check (status in ('next', 'active', 'retired'))
);
create unique index signing_keys_one_active on signing_keys (status) where status = 'active';
create unique index signing_keys_one_next on signing_keys (status) where status = 'next';

-- RFC 8628. pending -> approved | denied, approved -> consumed; each step by a conditional update.
create table device_codes (
  code_hash        bytea       not null,
  user_code        text        not null,
  client_id        text        not null references clients (client_id) on delete cascade,
  scope            text        not null,
  status           text        not null,
  user_id          uuid,
  account_id       uuid        references accounts (id) on delete cascade,
  family_id        uuid,
  decided_at       timestamptz,
  interval_seconds integer     not null,
  last_polled_at   timestamptz,
  created_at       timestamptz not null,
  expires_at       timestamptz not null,
  grants           text[]      not null default '{}',
  -- Open device codes are bounded per client and per requesting address.
  address          text        not null default '',
  constraint device_codes_pk primary key (code_hash),
  constraint device_codes_status_known check (status in ('pending', 'approved', 'denied', 'consumed')),
  constraint device_codes_user_when_approved check (status not in ('approved', 'consumed') or user_id is not null)
);
create unique index device_codes_user_code_unique on device_codes (user_code);
create index device_codes_by_end on device_codes (expires_at);
create index device_codes_pending_by_client on device_codes (client_id) where status = 'pending';
create index device_codes_pending_by_address on device_codes (address) where status = 'pending' and address <> '';

-- RFC 6749 section 4.1 with PKCE. A second redemption ends the family that the first one created.
create table authorization_codes (
  code_hash      bytea       not null,
  client_id      text        not null references clients (client_id) on delete cascade,
  account_id     uuid        not null references accounts (id) on delete cascade,
  user_id        uuid        not null,
  family_id      uuid        not null,
  redirect_uri   text        not null,
  scope          text        not null,
  nonce          text,
  code_challenge text        not null,
  auth_time      timestamptz not null,
  created_at     timestamptz not null,
  expires_at     timestamptz not null,
  consumed_at    timestamptz,
  -- Ancestors of the login, ids as in grant_ends.
  grants         text[]      not null default '{}',
  constraint authorization_codes_pk primary key (code_hash)
);
create index authorization_codes_by_end on authorization_codes (expires_at);

create table consents (
  client_id   text        not null references clients (client_id) on delete cascade,
  account_id  uuid        not null references accounts (id) on delete cascade,
  scopes      text[]      not null,
  updated_at  timestamptz not null,
  -- Hash of the registered client's name and redirect URIs that the person consented to; null for an app's own client. A
  -- consent is valid only while the client still has them.
  client_hash bytea,
  constraint consents_pk primary key (client_id, account_id)
);

-- Tokens of one interactive login. Ending the family revokes its refresh tokens and JWTs.
create table token_families (
  id         uuid        not null,
  app_id     uuid        not null references apps (id) on delete cascade,
  user_id    uuid        not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  ended_at   timestamptz,
  grants     text[]      not null default '{}',
  constraint token_families_pk primary key (id),
  constraint token_families_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade
);
create index token_families_by_user on token_families (app_id, user_id) where ended_at is null;
create index token_families_by_end on token_families (expires_at);

create table refresh_tokens (
  token_hash bytea       not null,
  family_id  uuid        not null references token_families (id) on delete cascade,
  client_id  text        not null,
  account_id uuid        not null,
  scope      text        not null,
  auth_time  timestamptz not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  rotated_at timestamptz,
  constraint refresh_tokens_pk primary key (token_hash)
);
create index refresh_tokens_by_family on refresh_tokens (family_id);
create index refresh_tokens_of_registered_clients on refresh_tokens (client_id, created_at) where client_id like 'dyn\_%';

-- Opaque signer sessions: svc_ss_…, by hash.
create table signer_sessions (
  app_id       uuid        not null,
  id           uuid        not null,
  user_id      uuid        not null,
  token_hash   bytea       not null,
  pepper_id    text        not null,
  scope        text        not null,
  label        text        not null,
  created_at   timestamptz not null,
  expires_at   timestamptz not null,
  last_used_at timestamptz,
  revoked_at   timestamptz,
  grants       text[]      not null default '{}',
  constraint signer_sessions_pk primary key (app_id, id),
  constraint signer_sessions_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade
);
create unique index signer_sessions_hash_unique on signer_sessions (token_hash);
create index signer_sessions_by_user on signer_sessions (app_id, user_id, created_at, id);
create index signer_sessions_by_end on signer_sessions (expires_at);
