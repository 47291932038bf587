-- OAuth clients that register themselves (RFC 7591). They are clients of an app like its public one, any number of them.
alter table clients drop constraint clients_kind_known;
alter table clients drop constraint clients_id_fits_kind;
alter table clients add constraint clients_kind_known check (kind in ('public', 'm2m', 'registered'));
alter table clients add constraint clients_id_fits_kind check (
  (kind = 'public' and client_id ~ '^app_[0-9a-f]{24}$')
  or (kind = 'm2m' and client_id ~ '^m2m_[0-9a-f]{24}$')
  or (kind = 'registered' and client_id ~ '^dyn_[0-9a-f]{24}$'));
drop index clients_one_of_each_kind;
create unique index clients_one_of_each_kind on clients (app_id, kind) where kind <> 'registered';

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
  -- Of the registration access token (RFC 7592).
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
create index refresh_tokens_of_registered_clients on refresh_tokens (client_id, created_at) where client_id like 'dyn\_%';
