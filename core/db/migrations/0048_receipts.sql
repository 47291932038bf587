-- What receipts are proved by (docs/receipts.md): for each day a cut through the ledger, and for each app with tickets
-- between two cuts the root of a Merkle tree over them. All tables are new: no table that is in use is read or locked.

-- The first one is where roots begin. A charge belongs to the first day whose snapshot saw it: whatever the clocks say, and
-- however late a transaction commits, that is one day for each charge, and once a day is cut nothing is added to it.
create table receipt_days (
  day      date        not null,
  cut_at   timestamptz not null,
  snapshot pg_snapshot not null,
  -- When the last root of the day was made; the first day has none.
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
  -- The signed statement (JWS), and the public key that it was signed with, which outlives its publication.
  statement  text        not null,
  jwk        jsonb       not null,
  created_at timestamptz not null,
  constraint receipt_roots_pk primary key (app_id, day)
);
create trigger receipt_roots_append_only before update or delete on receipt_roots
  for each row execute function refuse_rewrite();

-- The tree in subtrees of 1,024 leaves, each with its first ticket, so that a proof reads one of them and not the day, also
-- when tickets of the day are in an archive: 32 bytes for each ticket.
create table receipt_chunks (
  app_id    uuid        not null,
  day       date        not null,
  number    integer     not null,
  user_id   uuid        not null,
  signed_at timestamptz not null,
  event_id  text        not null collate "C",
  -- The root of the subtree, and the hashes of its leaves one behind the other.
  hash      bytea       not null,
  leaves    bytea       not null,
  constraint receipt_chunks_pk primary key (app_id, day, number),
  constraint receipt_chunks_whole check (length(leaves) between 32 and 32768 and length(leaves) % 32 = 0)
);
-- Hashes do not compress.
alter table receipt_chunks alter column leaves set storage external;
create trigger receipt_chunks_append_only before update or delete on receipt_chunks
  for each row execute function refuse_rewrite();
