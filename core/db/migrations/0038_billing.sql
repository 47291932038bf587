-- What the platform settles for an app: its cut of network fees, who is invoiced for what, how many end users the app may
-- have, and whether it is one of the platform's own. An app without a row has the deployment's defaults.

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
  for each row execute function refuse_rewrite();

create table billing_settings (
  app_id            uuid        not null references apps (id) on delete cascade,
  billing_mode      text        not null default 'owner_rollup',
  -- Null: as many as the deployment allows.
  end_user_cap      integer,
  is_platform_owned boolean     not null default false,
  updated_at        timestamptz not null,
  constraint billing_settings_pk primary key (app_id),
  constraint billing_settings_mode_known check (billing_mode in ('owner_rollup', 'merchant')),
  constraint billing_settings_cap_within check (end_user_cap between 1 and 1000000)
);

-- Counts the users that take a place of the cap.
create index end_users_active on end_users (app_id) include (external_user_id) where status = 'active';
