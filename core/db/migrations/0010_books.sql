-- Proofs of the books: checkpoints, receipts, archives.

-- Heads of all accounts of an app at an instant, each chained to the one before. Logged and exported, they reveal even a
-- consistent rewrite.
create table checkpoints (
  app_id       uuid        not null,
  number       bigint      not null,
  created_at   timestamptz not null,
  -- Covered entries: visible to this snapshot, booked up to `through`.
  snapshot     pg_snapshot not null,
  through      timestamptz not null,
  users        bigint      not null,
  entries      bigint      not null,
  -- SHA-256 of the accounts' heads, and of that with the previous head.
  root         bytea       not null,
  head         bytea       not null,
  -- Ends of the price chain and of the roots at the checkpoint.
  prices       bigint      not null,
  prices_hash  bytea       not null,
  receipt_day  date,
  receipt_hash bytea,
  constraint checkpoints_pk primary key (app_id, number)
);
create trigger checkpoints_append_only before update or delete on checkpoints
  for each row execute function refuse_rewrite();

-- The last checkpoint and the last root of each app, so that deleted last rows are noticed.
create table book_heads (
  app_id uuid   not null,
  kind   text   not null,
  -- Number of the checkpoint, or day of the root in days since 1970.
  number bigint not null,
  -- Head of the checkpoint, or SHA-256 of the root's statement.
  hash   bytea  not null,
  constraint book_heads_pk primary key (app_id, kind),
  constraint book_heads_kind_known check (kind in ('checkpoint', 'root'))
);

-- Days of receipts; roots begin with the first row. A charge belongs to the first day whose snapshot saw it, independent of
-- clocks and of late commits, so that nothing is added to a day after its cut.
create table receipt_days (
  day      date        not null,
  cut_at   timestamptz not null,
  snapshot pg_snapshot not null,
  -- When the last root of the day was built; the first day has none.
  built_at timestamptz,
  constraint receipt_days_pk primary key (day)
);
create index receipt_days_to_build on receipt_days (day) where built_at is null;
create trigger receipt_days_append_only before update of day, cut_at, snapshot or delete on receipt_days
  for each row execute function refuse_rewrite();

create table receipt_roots (
  app_id     uuid        not null,
  day        date        not null,
  tree_size  bigint      not null,
  root_hash  bytea       not null,
  -- The signed statement (JWS) and its public key, stored because the published key set drops old keys.
  statement  text        not null,
  jwk        jsonb       not null,
  created_at timestamptz not null,
  constraint receipt_roots_pk primary key (app_id, day)
);
create trigger receipt_roots_append_only before update or delete on receipt_roots
  for each row execute function refuse_rewrite();

-- The tree in subtrees of 1,024 leaves, each with its first ticket: a proof reads one subtree, not the whole day, even if
-- the tickets are archived. 32 bytes a ticket.
create table receipt_chunks (
  app_id    uuid        not null,
  day       date        not null,
  number    integer     not null,
  user_id   uuid        not null,
  signed_at timestamptz not null,
  event_id  text        not null collate "C",
  -- Root of the subtree, and the concatenated hashes of its leaves.
  hash      bytea       not null,
  leaves    bytea       not null,
  constraint receipt_chunks_pk primary key (app_id, day, number),
  constraint receipt_chunks_whole check (length(leaves) between 32 and 32768 and length(leaves) % 32 = 0)
);
alter table receipt_chunks alter column leaves set storage external;
create trigger receipt_chunks_append_only before update or delete on receipt_chunks
  for each row execute function refuse_rewrite();

-- Like receipt_days, which apply to a test app until its first own day.
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

-- One row for each file: an app's tickets of one month. A late ticket of an archived month begins another part.
create table ticket_archives (
  app_id             uuid          not null,
  month              date          not null,
  part               integer       not null,
  file               text          not null,
  sha256             text          not null,
  tickets            bigint        not null,
  fee_wei            numeric(78,0) not null,
  cost_attos         numeric(38,0) not null,
  archived_at        timestamptz   not null,
  -- When its tickets were last restored; restored tickets are no longer counted here.
  restored_at        timestamptz,
  markup_attos       numeric(38,0) not null default 0,
  platform_fee_attos numeric(38,0) not null default 0,
  platform_fee_wei   numeric(78,0) not null default 0,
  constraint ticket_archives_pk primary key (app_id, month, part),
  constraint ticket_archives_month_begins check (extract(day from month) = 1),
  constraint ticket_archives_not_negative check (tickets >= 0 and fee_wei >= 0 and cost_attos >= 0)
);
create index ticket_archives_by_hash on ticket_archives (sha256);

-- Share of archived tickets in each charge, so that the ledger can be proved without them.
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
