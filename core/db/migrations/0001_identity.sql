-- Tenants, their clients and people, and their end users.

create function refuse_rewrite() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only', tg_table_name using errcode = 'check_violation';
end $$;

create function refuse_other_kind() returns trigger language plpgsql as $$
begin
  raise exception 'an app is a test app from its creation on, or never';
end $$;

create table accounts (
  id                uuid        not null,
  email             text        collate "C" not null,
  password_hash     text,
  created_at        timestamptz not null,
  name              text        not null default '',
  is_platform_admin boolean     not null default false,
  -- Null means the deployment's default.
  apps_max          integer,
  -- Generation of the account's logins. It grows when all logins end, for example at a password reset; credentials of
  -- an older generation are invalid.
  login_generation  integer     not null default 0,
  constraint accounts_pk primary key (id),
  constraint accounts_email_normal check (
    email ~ '^[a-z0-9!#$%&''*+/=?^_`{|}~.-]{1,64}@([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'
    and octet_length(email) <= 254 and email !~ '[@.][0-9]+$'),
  constraint accounts_apps_max_not_negative check (apps_max >= 0)
);
create unique index accounts_email_unique on accounts (email);

-- Sign-in through an outside OIDC provider: one account for each (issuer, subject).
create table account_identities (
  issuer     text        not null,
  subject    text        not null,
  account_id uuid        not null references accounts (id) on delete cascade,
  created_at timestamptz not null,
  constraint account_identities_pk primary key (issuer, subject)
);

-- An outside identity whose verified address an account already has. That account's password links the two.
create table identity_links (
  token_hash bytea       not null,
  account_id uuid        not null references accounts (id) on delete cascade,
  issuer     text        not null,
  subject    text        not null,
  attempts   integer     not null default 0,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  constraint identity_links_pk primary key (token_hash)
);
create index identity_links_by_end on identity_links (expires_at);

-- Answers of login providers that were used; each works once.
create table used_provider_logins (
  state_hash bytea       not null,
  expires_at timestamptz not null,
  constraint used_provider_logins_pk primary key (state_hash)
);
create index used_provider_logins_by_end on used_provider_logins (expires_at);

-- Server-side sessions of the dashboard and of the login pages; the cookie's token is stored as a hash.
create table web_sessions (
  token_hash       bytea       not null,
  account_id       uuid        not null references accounts (id) on delete cascade,
  csrf_token       text        not null,
  auth_time        timestamptz not null,
  created_at       timestamptz not null,
  last_seen_at     timestamptz not null,
  expires_at       timestamptz not null,
  login_generation integer     not null,
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
-- For the deletion of expired rows in batches.
create index password_resets_by_end on password_resets (expires_at);

create table apps (
  id                   uuid        not null,
  name                 text        not null,
  starter_usd_micros   bigint      not null,
  created_at           timestamptz not null,
  status               text        not null default 'active',
  color                text        not null default '#1f6feb',
  developer_name       text        not null default '',
  website_url          text        not null default '',
  dmz_url              text        not null default '',
  updated_at           timestamptz,
  -- A deleted app keeps its row: tickets, ledger and audit log refer to it.
  deleted_at           timestamptz,
  -- How tickets arrive. Only an app with a signer of its own (dmz_url) sets it; null is the deployment's mode.
  signer_metering_mode text,
  login_policy         text        not null default 'members',
  login_domains        text[]      not null default '{}',
  -- Whether users who log in receive the included usage of Starter.
  login_credit         boolean     not null default true,
  -- A test app has a clock that its owner moves ahead (docs/test-clock.md). The kind never changes.
  is_test              boolean     not null default false,
  constraint apps_pk primary key (id),
  constraint apps_name_not_blank check (name <> ''),
  constraint apps_starter_not_negative check (starter_usd_micros >= 0),
  constraint apps_status_known check (status in ('active', 'disabled', 'deleted')),
  constraint apps_deleted_once check ((status = 'deleted') = (deleted_at is not null)),
  constraint apps_color_hex check (color ~ '^#[0-9a-f]{6}$'),
  constraint apps_signer_metering_mode_known check (signer_metering_mode in ('stream', 'direct')),
  constraint apps_login_policy_known check (login_policy in ('members', 'domains', 'anyone'))
);
create trigger apps_kind_stays before update of is_test on apps
  for each row when (old.is_test is distinct from new.is_test) execute function refuse_other_kind();

create table members (
  app_id     uuid        not null references apps (id) on delete cascade,
  account_id uuid        not null references accounts (id) on delete cascade,
  role       text        not null,
  created_at timestamptz not null,
  constraint members_pk primary key (app_id, account_id),
  constraint members_role_known check (role in ('owner', 'admin', 'viewer'))
);
-- For the list of an owner's apps.
create index members_by_account on members (account_id);

create table invitations (
  app_id     uuid        not null references apps (id) on delete cascade,
  id         uuid        not null,
  email      text        not null collate "C",
  role       text        not null,
  invited_by uuid        not null references accounts (id) on delete cascade,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  constraint invitations_pk primary key (app_id, id),
  constraint invitations_email_unique unique (app_id, email),
  constraint invitations_role_known check (role in ('owner', 'admin', 'viewer'))
);
create index invitations_by_email on invitations (email);
create index invitations_by_end on invitations (expires_at);

-- Each app has two clients, created together. The public client has no secret.
create table clients (
  client_id                         text        not null,
  app_id                            uuid        not null references apps (id) on delete cascade,
  kind                              text        not null,
  scopes                            text[]      not null,
  created_at                        timestamptz not null,
  grant_types                       text[]      not null default '{}',
  redirect_uris                     text[]      not null default '{}',
  post_logout_redirect_uris         text[]      not null default '{}',
  initiate_login_uri                text,
  device_third_party_initiate_login boolean     not null default false,
  constraint clients_pk primary key (client_id),
  constraint clients_kind_known check (kind in ('public', 'm2m', 'registered')),
  constraint clients_id_fits_kind check (
    (kind = 'public' and client_id ~ '^app_[0-9a-f]{24}$')
    or (kind = 'm2m' and client_id ~ '^m2m_[0-9a-f]{24}$')
    or (kind = 'registered' and client_id ~ '^dyn_[0-9a-f]{24}$'))
);
create unique index clients_one_of_each_kind on clients (app_id, kind) where kind <> 'registered';

create table client_secrets (
  id          uuid        not null,
  client_id   text        not null references clients (client_id) on delete cascade,
  secret_hash bytea       not null,
  pepper_id   text        not null,
  created_at  timestamptz not null,
  expires_at  timestamptz,
  constraint client_secrets_pk primary key (id),
  constraint client_secrets_only_for_m2m check (client_id like 'm2m\_%')
);
create index client_secrets_by_client on client_secrets (client_id);

-- Origins from which browsers may call an app's routes (CORS).
create table domains (
  app_id     uuid        not null references apps (id) on delete cascade,
  id         uuid        not null,
  origin     text        not null,
  created_at timestamptz not null,
  constraint domains_pk primary key (app_id, id),
  constraint domains_origin_unique unique (app_id, origin)
);
create index domains_by_origin on domains (origin);

create table end_users (
  app_id             uuid        not null references apps (id) on delete cascade,
  id                 uuid        not null,
  external_user_id   text        not null,
  email              text,
  status             text        not null,
  tokens_valid_after timestamptz,
  created_at         timestamptz not null,
  updated_at         timestamptz not null,
  deactivated_at     timestamptz,
  constraint end_users_pk primary key (app_id, id),
  constraint end_users_external_id_unique unique (app_id, external_user_id),
  constraint end_users_status_known check (status in ('active', 'inactive'))
);
-- For the list of an app's users, in cursor order.
create index end_users_by_age on end_users (app_id, created_at, id);
-- For the count of users against the app's cap.
create index end_users_active on end_users (app_id) include (external_user_id) where status = 'active';

-- Apps whose tenant creates users at the builder API, with its own admin secret.
create table tenants (
  app_id     uuid        not null references apps (id) on delete cascade,
  status     text        not null default 'active',
  created_at timestamptz not null,
  updated_at timestamptz not null,
  constraint tenants_pk primary key (app_id),
  constraint tenants_status_known check (status in ('active', 'disabled'))
);

create table tenant_secrets (
  id          uuid        not null,
  app_id      uuid        not null references tenants (app_id) on delete cascade,
  secret_hash bytea       not null,
  pepper_id   text        not null,
  created_at  timestamptz not null,
  expires_at  timestamptz,
  constraint tenant_secrets_pk primary key (id)
);
create index tenant_secrets_by_tenant on tenant_secrets (app_id);

-- Issuers whose tokens identify an app's users. `generation` grows with each change and ends what earlier ones admitted.
create table trusted_issuers (
  app_id        uuid        not null references apps (id) on delete cascade,
  id            uuid        not null,
  generation    integer     not null default 1,
  issuer        text        not null,
  audiences     text[]      not null,
  client_claim  text,
  client_values text[]      not null,
  user_claim    text        not null,
  jwks_uri      text,
  created_at    timestamptz not null,
  updated_at    timestamptz not null,
  -- Prefix of the user claim in external ids; empty for no prefix.
  user_prefix   text        not null default '',
  constraint trusted_issuers_pk primary key (app_id, id),
  constraint trusted_issuers_client check ((client_claim is null) = (cardinality(client_values) = 0)),
  constraint trusted_issuers_narrow check (cardinality(audiences) > 0 or client_claim is not null)
);
create index trusted_issuers_by_issuer on trusted_issuers (issuer);

-- Each combination that a token may match belongs to one app. Empty text means no condition.
create table trusted_issuer_matches (
  app_id            uuid not null,
  trusted_issuer_id uuid not null,
  issuer            text not null,
  audience          text not null,
  claim             text not null,
  value             text not null,
  constraint trusted_issuer_matches_one_app primary key (issuer, audience, claim, value),
  constraint trusted_issuer_matches_of_issuer foreign key (app_id, trusted_issuer_id)
    references trusted_issuers (app_id, id) on delete cascade
);
create index trusted_issuer_matches_by_issuer on trusted_issuer_matches (app_id, trusted_issuer_id);

-- End users at an outside provider. The primary key and the claim decide which process creates a user there, because a
-- search at the provider may be seconds old. A row without provider_user_id is a creation in progress or interrupted.
create table provider_users (
  app_id           uuid                                      not null references apps (id) on delete cascade,
  external_user_id text                                      not null,
  -- Provider and address: each directory has its own users.
  directory        text                                      not null,
  provider_user_id text,
  -- The address last sent to the provider.
  email            text,
  claim            uuid,
  claimed_until    timestamptz,
  created_at       timestamptz                               not null,
  updated_at       timestamptz                               not null,
  primary          key (app_id, external_user_id, directory),
  constraint provider_users_claimed_whole check ((claim is null) = (claimed_until is null)),
  constraint provider_users_whole_or_claimed check (provider_user_id is not null or claim is not null)
);

-- Initial access tokens (RFC 7591 section 3).
create table registration_tokens (
  id         uuid        not null,
  app_id     uuid        not null references apps (id) on delete cascade,
  label      text        not null,
  token_hash bytea       not null,
  pepper_id  text        not null,
  uses       integer     not null default 0,
  uses_max   integer     not null,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  revoked_at timestamptz,
  constraint registration_tokens_pk primary key (id),
  constraint registration_tokens_unique unique (token_hash),
  constraint registration_tokens_uses_bounded check (uses between 0 and uses_max)
);
create index registration_tokens_by_app on registration_tokens (app_id, created_at);

create table registered_clients (
  client_id        text        not null references clients (client_id) on delete cascade,
  app_id           uuid        not null references apps (id) on delete cascade,
  initial_token_id uuid        not null references registration_tokens (id),
  -- Hash of the registration access token (RFC 7592).
  token_hash       bytea       not null,
  pepper_id        text        not null,
  name             text        not null,
  client_uri       text,
  software_id      text,
  software_version text,
  created_at       timestamptz not null,
  updated_at       timestamptz not null,
  constraint registered_clients_pk primary key (client_id)
);
create index registered_clients_by_app on registered_clients (app_id, created_at);
create index registered_clients_by_age on registered_clients (created_at);

-- Valid invitations: the app exists and the inviter may still invite. Readers compare `expires_at` with their own time.
create view standing_invitations as
select i.app_id, i.id, i.email, i.role, i.created_at, i.expires_at, c.client_id, a.name as app_name,
       coalesce(p.email, '') as invited_by
from invitations i
join apps a on a.id = i.app_id and a.status <> 'deleted'
join clients c on c.app_id = i.app_id and c.kind = 'public'
join accounts p on p.id = i.invited_by
where p.is_platform_admin
   or exists (select from members m
              where m.app_id = i.app_id and m.account_id = i.invited_by
                and (m.role = 'owner' or (m.role = 'admin' and i.role <> 'owner')));
