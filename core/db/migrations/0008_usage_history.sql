-- What usage is asked for beside its sums. Indexes on sessions cost ingest once for each session, not for each ticket.

-- Sessions of a whole app, the newest first.
create index ticket_sessions_by_app on ticket_sessions (app_id, started_at, session_id, user_id);
-- Sessions of one manifest; a ticket without one stands under its session.
create index ticket_sessions_by_manifest on ticket_sessions (
  app_id, (coalesce(nullif(manifest_id, '') collate "C", session_id)), started_at);

-- The tickets of one gateway request. A btree would cost ingest a tenth; this one says of each range of pages whether
-- the request can be in it, and is wrong about one in a thousand.
create index tickets_by_request on tickets using brin (
  request_id text_bloom_ops(n_distinct_per_range = 700, false_positive_rate = 0.001))
  with (pages_per_range = 32, autosummarize = on);

-- Who follows the ledger reads what a snapshot of the database did not see yet: only the transaction of an entry tells
-- that, as neither times nor numbers of an app are in the order of commits. Entries of before count as of this one.
alter table ledger_entries
  add column xact bigint not null default (pg_current_xact_id()::text::bigint),
  -- Of a charge: the tickets that it covers. Not known of older ones.
  add column ticket_count integer,
  add constraint ledger_entries_tickets_of_charges check (ticket_count is null or (kind = 'charge' and ticket_count > 0));
create index ledger_entries_by_xact on ledger_entries (app_id, xact);
