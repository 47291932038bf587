-- Why sidecars refused calls, and why they allowed some (docs/operations.md). Kept for days, and so many for each app.
create table decisions (
  id          text        not null collate "C",
  -- Null when the credential led to no app.
  app_id      uuid,
  recorded_at timestamptz not null,
  record      jsonb       not null,
  constraint decisions_pk primary key (id),
  constraint decisions_app foreign key (app_id) references apps (id) on delete cascade
);
create index decisions_by_app on decisions (app_id, recorded_at);
create index decisions_by_age on decisions (recorded_at);
