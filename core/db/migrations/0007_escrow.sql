-- What is lent to sidecars, authorised and not yet in the ledger (docs/escrow.md).

-- One row for each sidecar, with the process that holds its id.
create table sidecars (
  id                 text        not null collate "C",
  instance           uuid        not null,
  started_at         timestamptz not null,
  seen_at            timestamptz not null,
  -- Set on a clean stop.
  stopped_at         timestamptz,
  reported_through   bigint      not null default 0,
  last_authorised_at timestamptz,
  -- Core knows all calls that the process allowed before this instant.
  complete_at        timestamptz,
  -- The process knows all sessions that were joined until this instant.
  shared_through     timestamptz,
  constraint sidecars_pk primary key (id)
);

-- Stream clock of each sidecar: when its latest call with a booked ticket was authorised. A separate table, so that
-- ingest, which writes it at the end of its transaction, does not wait for a report.
create table sidecar_clocks (
  sidecar_id     text        not null collate "C",
  booked_through timestamptz not null,
  constraint sidecar_clocks_pk primary key (sidecar_id)
);

create table leases (
  app_id       uuid          not null,
  user_id      uuid          not null,
  id           uuid          not null,
  sidecar_id   text          not null collate "C",
  instance     uuid          not null,
  amount_attos numeric(38,0) not null,
  used_attos   numeric(38,0) not null default 0,
  created_at   timestamptz   not null,
  ends_at      timestamptz   not null,
  recalled_at  timestamptz,
  -- The lowest ratio of retail to network price sent under the lease, scaled by 10^18. It bounds the operator's cost of
  -- the rest.
  retail_ratio numeric(38,0) not null default 1000000000000000000,
  constraint leases_pk primary key (app_id, user_id, id),
  constraint leases_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint leases_used_within check (used_attos between 0 and amount_attos)
) with (fillfactor = 70);
create unique index leases_one_for_each_process on leases (app_id, user_id, instance);
create index leases_by_end on leases (ends_at);
create index leases_recalled on leases (instance) where recalled_at is not null;

create table authorisations (
  app_id          uuid            not null,
  user_id         uuid            not null,
  session_id      text            not null collate "C",
  sequence_number bigint          not null,
  -- The signer's LastUpdate, microseconds since 1970.
  signed_micros   bigint          not null,
  id              bigint          not null generated always as identity,
  sidecar_id      text            not null collate "C",
  key_id          uuid,
  session_type    text            not null,
  bound_attos     numeric(38,0)   not null,
  authorised_at   timestamptz     not null,
  -- pending, released, lost or charged. Settlement deletes the row.
  state           text            not null default 'pending',
  state_at        timestamptz,
  proven          boolean         not null default false,
  -- The ticket is booked and waits for a price; the row is never released.
  ticketed        boolean         not null default false,
  approximate     boolean         not null default false,
  offline         boolean         not null default false,
  -- Credits and amounts that the estimate of a lost call drew. They are given back when the ticket arrives. Null unless
  -- the call is charged.
  drawn_ids       uuid[],
  drawn_attos     numeric(38,0)[],
  -- The bound at network price; null if equal to the bound.
  network_attos   numeric(38,0),
  -- A row can hold several calls of a session that were reported together (docs/escrow.md, "Authorisation"). Its key is
  -- that of the last call, `authorised_at` the time of the first. `calls` counts those without a booked ticket.
  calls           integer         not null default 1,
  -- Of several calls, in the order of their numbers: the signer's times in microseconds, the bounds in nano-dollars, and
  -- the numbers without a booked ticket.
  call_micros     bigint[],
  call_nanos      bigint[],
  open_numbers    int8multirange,
  -- When the last of several calls was authorised, also after a split.
  last_at         timestamptz,
  constraint authorisations_pk primary key (app_id, user_id, session_id, sequence_number, signed_micros, id),
  constraint authorisations_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint authorisations_bound_not_negative check (bound_attos >= 0),
  constraint authorisations_state_known check (state in ('pending', 'released', 'lost', 'charged')),
  constraint authorisations_drawn_whole check (
    (drawn_ids is null) = (drawn_attos is null)
    and coalesce(cardinality(drawn_ids), 0) = coalesce(cardinality(drawn_attos), 0)),
  constraint authorisations_calls_positive check (calls > 0),
  constraint authorisations_run_whole check (
    (open_numbers is null) = (call_micros is null) and (open_numbers is null) = (call_nanos is null)
    and (open_numbers is null or last_at is not null)
    and case when open_numbers is null then calls = 1 else calls <= cardinality(call_micros) end)
) with (fillfactor = 80);
create index authorisations_pending on authorisations (sidecar_id, authorised_at) include (bound_attos)
  where state = 'pending' and not ticketed;
create index authorisations_ticketed on authorisations (bound_attos) where state = 'pending' and ticketed;
create index authorisations_ended on authorisations (state_at) where state <> 'pending';
-- For the sum of an owner's held money, under the owner's lock. Ended rows are kept for 30 days.
create index authorisations_held on authorisations (app_id) include (bound_attos, network_attos) where state = 'pending';
-- For finding the run with a ticket's number.
create index authorisations_runs on authorisations (app_id, user_id, session_id, sequence_number)
  where call_micros is not null;

-- Tickets that arrived before the report of their call, while their user has a lease.
create table early_tickets (
  app_id          uuid          not null,
  user_id         uuid          not null,
  session_id      text          not null collate "C",
  sequence_number bigint        not null,
  signed_micros   bigint        not null,
  id              bigint        not null generated always as identity,
  -- Null until the ticket has a price; meanwhile its bound is pending.
  cost_attos      numeric(38,0),
  booked_at       timestamptz   not null,
  constraint early_tickets_pk primary key (app_id, user_id, session_id, sequence_number, signed_micros, id),
  constraint early_tickets_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade
);
create index early_tickets_by_age on early_tickets (booked_at);

-- Totals and prior calls of each authorised session. Amounts are bounds; `ticketed_attos` is cost.
create table authorised_sessions (
  app_id            uuid          not null,
  user_id           uuid          not null,
  session_id        text          not null collate "C",
  session_type      text          not null,
  started_at        timestamptz   not null,
  last_at           timestamptz   not null,
  -- The lowest and the highest allowed number, each with the signer's time of its first call (Unix seconds and
  -- nanoseconds).
  start_sequence    bigint        not null,
  start_seconds     bigint        not null,
  start_nanos       integer       not null,
  top_sequence      bigint        not null,
  top_seconds       bigint        not null,
  top_nanos         integer       not null,
  -- The sidecar process that began the session, and since when another process serves it, too. From then on no single
  -- process knows all of its calls.
  instance          uuid          not null,
  shared_at         timestamptz,
  authorised_count  bigint        not null default 0,
  authorised_attos  numeric(38,0) not null default 0,
  ticketed_count    bigint        not null default 0,
  ticketed_attos    numeric(38,0) not null default 0,
  lost_count        bigint        not null default 0,
  lost_attos        numeric(38,0) not null default 0,
  charged_count     bigint        not null default 0,
  charged_attos     numeric(38,0) not null default 0,
  released_count    bigint        not null default 0,
  released_attos    numeric(38,0) not null default 0,
  late_count        bigint        not null default 0,
  late_attos        numeric(38,0) not null default 0,
  -- Calls of the session that are neither held nor ended in its totals. Zero unless a hold was deleted by hand.
  unaccounted_count bigint        not null default 0,
  constraint authorised_sessions_pk primary key (app_id, user_id, session_id),
  constraint authorised_sessions_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade
) with (fillfactor = 70);
create index authorised_sessions_by_start on authorised_sessions (app_id, started_at);
create index authorised_sessions_shared on authorised_sessions (instance, shared_at) where shared_at is not null;
-- For the report of losses.
create index authorised_sessions_lossy on authorised_sessions (app_id, started_at)
  where lost_count + charged_count + released_count + late_count > 0;
create index authorised_sessions_by_age on authorised_sessions (started_at) where session_type not in ('live', 'lv2v');
