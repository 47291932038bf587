-- People who log in, and what the issuer hands out in their name.

alter table accounts
  add column name text not null default '',
  add column is_platform_admin boolean not null default false,
  alter column password_hash drop not null;

-- Sign-in through an outside OIDC provider: one account for each (issuer, subject).
create table account_identities (
  issuer     text        not null,
  subject    text        not null,
  account_id uuid        not null references accounts (id) on delete cascade,
  created_at timestamptz not null,
  constraint account_identities_pk primary key (issuer, subject)
);

-- Server-side sessions of the dashboard and of the login pages; the cookie's token is stored as a hash.
create table web_sessions (
  token_hash   bytea       not null,
  account_id   uuid        not null references accounts (id) on delete cascade,
  csrf_token   text        not null,
  auth_time    timestamptz not null,
  created_at   timestamptz not null,
  last_seen_at timestamptz not null,
  expires_at   timestamptz not null,
  constraint web_sessions_pk primary key (token_hash)
);
create index web_sessions_by_account on web_sessions (account_id);
create index web_sessions_by_end on web_sessions (expires_at);

create table password_resets (
  token_hash bytea       not null,
  account_id uuid        not null references accounts (id) on delete cascade,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  used_at    timestamptz,
  constraint password_resets_pk primary key (token_hash)
);

alter table apps
  add column status text not null default 'active',
  add column color text not null default '#1f6feb',
  add column developer_name text not null default '',
  add column website_url text not null default '',
  add column dmz_url text not null default '',
  add column metering_mode text not null default 'stream',
  add column updated_at timestamptz,
  -- An app is never removed: its tickets, ledger and audit log are facts about money.
  add column deleted_at timestamptz,
  add constraint apps_status_known check (status in ('active', 'disabled', 'deleted')),
  add constraint apps_deleted_once check ((status = 'deleted') = (deleted_at is not null)),
  add constraint apps_color_hex check (color ~ '^#[0-9a-f]{6}$'),
  add constraint apps_metering_mode_known check (metering_mode in ('stream', 'direct'));

alter table clients
  add column grant_types text[] not null default '{}',
  add column redirect_uris text[] not null default '{}',
  add column post_logout_redirect_uris text[] not null default '{}',
  add column initiate_login_uri text,
  add column device_third_party_initiate_login boolean not null default false;
update clients set grant_types = case kind
  when 'public' then '{authorization_code,refresh_token,urn:ietf:params:oauth:grant-type:device_code}'::text[]
  else '{client_credentials,urn:ietf:params:oauth:grant-type:token-exchange}'::text[] end;

-- Origins that browsers may call an app's routes from.
create table domains (
  app_id     uuid        not null references apps (id) on delete cascade,
  id         uuid        not null,
  origin     text        not null,
  created_at timestamptz not null,
  constraint domains_pk primary key (app_id, id),
  constraint domains_origin_unique unique (app_id, origin)
);
create index domains_by_origin on domains (origin);

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
  constraint device_codes_pk primary key (code_hash),
  constraint device_codes_status_known check (status in ('pending', 'approved', 'denied', 'consumed')),
  constraint device_codes_user_when_approved check (status not in ('approved', 'consumed') or user_id is not null)
);
create unique index device_codes_user_code_unique on device_codes (user_code);
create index device_codes_by_end on device_codes (expires_at);

-- RFC 6749 section 4.1 with PKCE. A second redemption ends the family that the first began.
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
  constraint authorization_codes_pk primary key (code_hash)
);
create index authorization_codes_by_end on authorization_codes (expires_at);

-- Everything that one interactive login led to. Ending it voids its refresh tokens and JWTs.
create table token_families (
  id         uuid        not null,
  app_id     uuid        not null references apps (id) on delete cascade,
  user_id    uuid        not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  ended_at   timestamptz,
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

create table consents (
  client_id  text        not null references clients (client_id) on delete cascade,
  account_id uuid        not null references accounts (id) on delete cascade,
  scopes     text[]      not null,
  updated_at timestamptz not null,
  constraint consents_pk primary key (client_id, account_id)
);

-- JWTs that were revoked before their end (RFC 7009).
create table revoked_tokens (
  jti        text        not null,
  expires_at timestamptz not null,
  constraint revoked_tokens_pk primary key (jti)
);
create index revoked_tokens_by_end on revoked_tokens (expires_at);

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
  constraint signer_sessions_pk primary key (app_id, id),
  constraint signer_sessions_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade
);
create unique index signer_sessions_hash_unique on signer_sessions (token_hash);
create index signer_sessions_by_user on signer_sessions (app_id, user_id, created_at, id);
create index signer_sessions_by_end on signer_sessions (expires_at);

-- App-level keys belong to no user.
alter table api_keys
  alter column user_id drop not null,
  add column subscription_id uuid,
  add constraint api_keys_app foreign key (app_id) references apps (id) on delete cascade,
  add constraint api_keys_subscription foreign key (app_id, subscription_id) references subscriptions (app_id, id);

-- Capabilities that an app does not offer, and named discovery policies (legacy).
create table manifests (
  app_id     uuid        not null references apps (id) on delete cascade,
  excluded   jsonb       not null,
  updated_at timestamptz not null,
  constraint manifests_pk primary key (app_id)
);

create table discovery_profiles (
  app_id       uuid        not null references apps (id) on delete cascade,
  id           uuid        not null,
  name         text        not null,
  policy       jsonb       not null,
  capabilities jsonb       not null,
  created_at   timestamptz not null,
  updated_at   timestamptz not null,
  constraint discovery_profiles_pk primary key (app_id, id)
);
create unique index discovery_profiles_name_unique on discovery_profiles (app_id, lower(name));
