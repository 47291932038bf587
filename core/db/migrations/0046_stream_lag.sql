-- The oldest release that runs on it: 0.1.0
-- When the stream received its newest booked event, and when core last booked one; null in rows that only older releases
-- have written.
alter table stream_offsets add column newest_at timestamptz, add column booked_at timestamptz;

-- The range of offsets of a partition at the broker, as a collector last read it. A separate table, so that a reading
-- does not wait for ingest.
create table stream_ends (
  source       text        not null,
  partition    integer     not null,
  start_offset bigint      not null,
  end_offset   bigint      not null,
  read_at      timestamptz not null,
  -- The last reading at which every event before the end was booked.
  caught_up_at timestamptz,
  constraint stream_ends_pk primary key (source, partition)
);
