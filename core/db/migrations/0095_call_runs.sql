-- An authorisation can be for several calls of a session, which a sidecar reports together (docs/escrow.md, "Authorisation").
-- Its key is that of the last call; `authorised_at` is the time of the first.
alter table authorisations
  -- How many calls are held: those whose ticket has not come.
  add column calls        integer not null default 1,
  -- Where several were reported together, by call in the order of numbers: the signer's time in microseconds, and the bound in
  -- nano-dollars. And the numbers of the calls that are held.
  add column call_micros  bigint[],
  add column call_nanos   bigint[],
  add column open_numbers int8multirange,
  -- Of such a row, or of one that was split from it: when the last of the calls was authorised.
  add column last_at      timestamptz,
  add constraint authorisations_calls_positive check (calls > 0),
  add constraint authorisations_run_whole check (
    (open_numbers is null) = (call_micros is null) and (open_numbers is null) = (call_nanos is null)
    and (open_numbers is null or last_at is not null)
    and case when open_numbers is null then calls = 1 else calls <= cardinality(call_micros) end);
-- For the run that has a ticket's number.
create index authorisations_runs on authorisations (app_id, user_id, session_id, sequence_number)
  where call_micros is not null;

alter table sidecars
  -- Core knows all calls that the process allowed before this instant.
  add column complete_at    timestamptz,
  -- The process knows all sessions that were joined until this instant.
  add column shared_through timestamptz;
