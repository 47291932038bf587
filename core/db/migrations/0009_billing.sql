-- The platform's terms for each app.

-- The cut from `since` on, in percent of the network fee; null takes none. `since` is in the future when the row is
-- written, so that the cut of the past never changes.
create table platform_cuts (
  app_id     uuid         not null references apps (id) on delete cascade,
  since      timestamptz  not null,
  percent    numeric(5,2),
  created_at timestamptz  not null,
  constraint platform_cuts_pk primary key (app_id, since),
  constraint platform_cuts_within check (percent between 0 and 100),
  constraint platform_cuts_ahead check (since > created_at)
);
create trigger platform_cuts_append_only before update or delete on platform_cuts
  for each row execute function refuse_rewrite_of_terms();

create table billing_settings (
  app_id            uuid        not null references apps (id) on delete cascade,
  billing_mode      text        not null default 'owner_rollup',
  -- Null means the deployment's default.
  end_user_cap      integer,
  is_platform_owned boolean     not null default false,
  updated_at        timestamptz not null,
  -- Whether the M2M client of this platform-owned app may create users of every app (docs/builder-api.md).
  serves_every_app  boolean     not null default false,
  constraint billing_settings_pk primary key (app_id),
  constraint billing_settings_mode_known check (billing_mode in ('owner_rollup', 'merchant')),
  constraint billing_settings_cap_within check (end_user_cap between 1 and 1000000)
);
