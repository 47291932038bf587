-- The oldest release that runs on it: 0.1.0
-- The last run of each check that platform admins start: the books, the metering backend, the payment processor
-- (docs/books.md).

create table checks (
  name       text        not null,
  run_id     uuid        not null,
  started_at timestamptz not null,
  -- The name of the person or operator.
  started_by text        not null,
  -- Written every few seconds by the core that runs it. A run without it has ended with its core.
  seen_at    timestamptz not null,
  progress   text        not null,
  ended_at   timestamptz,
  -- Summary, findings or failure.
  outcome    jsonb,
  constraint checks_pk primary key (name),
  constraint checks_name_known check (name in ('books', 'metering', 'processor')),
  constraint checks_ended check ((ended_at is null) = (outcome is null))
);
