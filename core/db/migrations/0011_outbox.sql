-- What must reach another system: written in the transaction of its cause, removed when it has arrived. Tickets come
-- in batches, so that ingest writes a row for a thousand of them.
create table outbox (
  id           bigint      not null generated always as identity,
  kind         text        not null,
  payload      bytea       not null,
  item_count   integer     not null,
  -- Failures that were the row's own fault.
  attempts     integer     not null default 0,
  last_error   text,
  -- Whoever takes a row moves this ahead: when it dies, somebody else takes the row then.
  due_at       timestamptz not null,
  set_aside_at timestamptz,
  created_at   timestamptz not null,
  constraint outbox_pk primary key (id),
  constraint outbox_items_positive check (item_count > 0)
);
-- It is compressed already.
alter table outbox alter column payload set storage external;
create index outbox_due on outbox (kind, due_at, id) where set_aside_at is null;
create index outbox_by_age on outbox (created_at) where set_aside_at is null;
create index outbox_set_aside on outbox (set_aside_at, id) where set_aside_at is not null;

-- How far work beside the metering backend has come: which users it was told of, when it was last reconciled and with
-- what result.
create table backend_marks (
  name       text        not null,
  reached_at timestamptz not null,
  result     jsonb,
  constraint backend_marks_pk primary key (name)
);
