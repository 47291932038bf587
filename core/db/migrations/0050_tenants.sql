-- Apps whose tenant creates users at the builder API, with an admin secret of its own.
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
