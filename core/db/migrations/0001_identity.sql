-- Tenants, their clients and people, and their end users.

create table accounts (
  id            uuid        not null,
  email         text        not null,
  password_hash text        not null,
  created_at    timestamptz not null,
  constraint accounts_pk primary key (id)
);
create unique index accounts_email_unique on accounts (lower(email));

create table apps (
  id                  uuid        not null,
  name                text        not null,
  starter_usd_micros  bigint      not null,
  created_at          timestamptz not null,
  constraint apps_pk primary key (id),
  constraint apps_name_not_blank check (name <> ''),
  constraint apps_starter_not_negative check (starter_usd_micros >= 0)
);

create table members (
  app_id     uuid        not null references apps (id) on delete cascade,
  account_id uuid        not null references accounts (id) on delete cascade,
  role       text        not null,
  created_at timestamptz not null,
  constraint members_pk primary key (app_id, account_id),
  constraint members_role_known check (role in ('owner', 'admin', 'viewer'))
);

-- Two clients for each app, made together: the public one never has a secret.
create table clients (
  client_id  text        not null,
  app_id     uuid        not null references apps (id) on delete cascade,
  kind       text        not null,
  scopes     text[]      not null,
  created_at timestamptz not null,
  constraint clients_pk primary key (client_id),
  constraint clients_kind_known check (kind in ('public', 'm2m')),
  constraint clients_id_fits_kind check (
    (kind = 'public' and client_id ~ '^app_[0-9a-f]{24}$') or (kind = 'm2m' and client_id ~ '^m2m_[0-9a-f]{24}$'))
);
create unique index clients_one_of_each_kind on clients (app_id, kind);

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
-- The list of an app's users, in the order of its cursor.
create index end_users_by_age on end_users (app_id, created_at, id);

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
