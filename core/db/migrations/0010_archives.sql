-- Months of tickets that were written to files and dropped. Hourly sums, sessions and the ledger stay.

-- One row for each file: an app's tickets of one month. A ticket of an archived month that comes late begins another part.
create table ticket_archives (
  app_id      uuid          not null,
  month       date          not null,
  part        integer       not null,
  file        text          not null,
  sha256      text          not null,
  tickets     bigint        not null,
  fee_wei     numeric(78,0) not null,
  cost_attos  numeric(38,0) not null,
  archived_at timestamptz   not null,
  -- When its tickets were last put back into the table; what is back is no longer counted above.
  restored_at timestamptz,
  constraint ticket_archives_pk primary key (app_id, month, part),
  constraint ticket_archives_month_begins check (extract(day from month) = 1),
  constraint ticket_archives_not_negative check (tickets >= 0 and fee_wei >= 0 and cost_attos >= 0)
);
create index ticket_archives_by_hash on ticket_archives (sha256);

-- What archived tickets had in each charge: the ledger can still be proved to the atto-dollar without them.
create table archived_charges (
  app_id     uuid          not null,
  user_id    uuid          not null,
  charge_id  uuid          not null,
  month      date          not null,
  part       integer       not null,
  tickets    bigint        not null,
  cost_attos numeric(38,0) not null,
  constraint archived_charges_pk primary key (app_id, user_id, charge_id, month, part),
  constraint archived_charges_not_negative check (tickets >= 0 and cost_attos >= 0)
);
