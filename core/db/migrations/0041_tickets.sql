-- What a charge is explained from.

-- The ticket of an event id, and the charge that a ticket names. They say of each range of pages whether the id can be in it, as
-- tickets_by_request does: a btree would cost ingest more than these questions are worth.
create index tickets_by_event on tickets using brin (
  event_id text_bloom_ops(n_distinct_per_range = 700, false_positive_rate = 0.001))
  with (pages_per_range = 32, autosummarize = on);
create index ledger_entries_by_cause on ledger_entries using brin (
  cause_id uuid_bloom_ops(n_distinct_per_range = 1000, false_positive_rate = 0.001))
  with (pages_per_range = 32, autosummarize = on);
