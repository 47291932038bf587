-- Test apps, whose owners move their clocks ahead (docs/test-clock.md). An app is one from its creation, or never.
alter table apps add column is_test boolean not null default false;

create function refuse_other_kind() returns trigger language plpgsql as $$
begin
  raise exception 'an app is a test app for ever, or never';
end $$;
create trigger apps_kind_stays before update of is_test on apps
  for each row when (old.is_test is distinct from new.is_test) execute function refuse_other_kind();

-- By how much an app's clock is ahead of real time after `since`. A clock only goes forwards.
create table test_clock_moves (
  app_id   uuid        not null references apps (id) on delete cascade,
  since    timestamptz not null,
  ahead_ms bigint      not null,
  constraint test_clock_moves_pk primary key (app_id, since),
  constraint test_clock_moves_forwards unique (app_id, ahead_ms),
  constraint test_clock_moves_ahead check (ahead_ms > 0)
);
create trigger test_clock_moves_append_only before update or delete on test_clock_moves
  for each row execute function refuse_rewrite();

-- Of a ticket of a test app: by how much the app's clock was ahead when it was signed. `signed_at` is by the app's clock, so
-- that everything that counts by time does; the signer's own time is `signed_at` less this. Null: not ahead.
alter table tickets add column clock_ms bigint;
alter table tickets add constraint tickets_clock_ahead check (clock_ms > 0) not valid;
