-- Who may log in to an app, what an owner and an app may have in all, and people who are asked to join an app.

alter table apps
  add column login_policy text not null default 'members',
  add column login_domains text[] not null default '{}',
  -- Whether people who come by login get what the Starter plan includes.
  add column login_credit boolean not null default true,
  add constraint apps_login_policy_known check (login_policy in ('members', 'domains', 'anyone'));

-- Null means the deployment's default.
alter table accounts
  add column apps_max integer,
  add constraint accounts_apps_max_not_negative check (apps_max >= 0);

-- What an app may have given its users by hand and they have not spent. `bound_attos` is never below that sum: it grows
-- with each credit, and is counted anew when it would exceed the limit.
create table credit_quotas (
  app_id      uuid          not null references apps (id) on delete cascade,
  max_attos   numeric(38,0),
  bound_attos numeric(38,0) not null,
  updated_at  timestamptz   not null,
  constraint credit_quotas_pk primary key (app_id),
  constraint credit_quotas_max_not_negative check (max_attos >= 0),
  constraint credit_quotas_bound_not_negative check (bound_attos >= 0)
);
-- For counting anew.
create index grants_outstanding on grants (app_id) where kind = 'grant' and expired_at is null and remaining_attos > 0;

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
