-- The days of test apps end by their clocks (docs/test-clock.md). What was committed before a move, so that the day that the
-- move ends is cut there; null for moves from before.
alter table test_clock_moves add column snapshot pg_snapshot;
alter table test_clock_moves alter column snapshot set default pg_current_snapshot();

-- As receipt_days, which hold for a test app until its first own one.
create table test_days (
  app_id   uuid        not null,
  day      date        not null,
  cut_at   timestamptz not null,
  snapshot pg_snapshot not null,
  built_at timestamptz,
  constraint test_days_pk primary key (app_id, day),
  constraint test_days_app foreign key (app_id) references apps (id) on delete cascade
);
create index test_days_to_build on test_days (app_id, day) where built_at is null;
create trigger test_days_append_only before update of day, cut_at, snapshot or delete on test_days
  for each row execute function refuse_rewrite_of_terms();
