-- What the platform settles for each app.

-- The cut from `since` on, in percent of the network fee; null takes none. `since` lies ahead when the row is written, so that
-- the cut of an instant that has passed never changes.
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
  -- Null: as many as the deployment allows.
  end_user_cap      integer,
  is_platform_owned boolean     not null default false,
  updated_at        timestamptz not null,
  -- Apps that operators and platform admins make are platform-owned (docs/billing.md). The right of such an app's M2M client to
  -- create users of every app (docs/builder-api.md) still needs the explicit mark. Marked apps keep it.
  serves_every_app  boolean     not null default false,
  constraint billing_settings_pk primary key (app_id),
  constraint billing_settings_mode_known check (billing_mode in ('owner_rollup', 'merchant')),
  constraint billing_settings_cap_within check (end_user_cap between 1 and 1000000)
);
