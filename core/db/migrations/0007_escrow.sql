-- What is lent to sidecars, authorised and not yet in the ledger (docs/escrow.md).

-- One row for each sidecar that ever reported, and the process that holds its id.
create table sidecars (
  id                 text        not null collate "C",
  instance           uuid        not null,
  started_at         timestamptz not null,
  seen_at            timestamptz not null,
  -- Set when the process stopped cleanly.
  stopped_at         timestamptz,
  reported_through   bigint      not null default 0,
  last_authorised_at timestamptz,
  -- Core knows all calls that the process allowed before this instant.
  complete_at        timestamptz,
  -- The process knows all sessions that were joined until this instant.
  shared_through     timestamptz,
  constraint sidecars_pk primary key (id)
);

-- The stream's clock for each sidecar: when the latest of its calls whose ticket is booked was authorised. A table of its
-- own, because ingest writes it at the end of its transaction and must not wait for a report.
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
  -- The lowest ratio of retail to network price, scaled by 10^18, that the sidecar was told under the lease: what its rest may
  -- cost the operator.
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
  -- pending, released, lost or charged; a settled one is deleted.
  state           text            not null default 'pending',
  state_at        timestamptz,
  proven          boolean         not null default false,
  -- Its ticket is booked and waits for a price: never released.
  ticketed        boolean         not null default false,
  approximate     boolean         not null default false,
  offline         boolean         not null default false,
  -- What the estimate of a lost call drew, and from which credits: that is given back when its ticket comes, and no part
  -- that was overage. Null unless the call is charged, and for estimates older than the columns.
  drawn_ids       uuid[],
  drawn_attos     numeric(38,0)[],
  -- The bound at network price; null is the bound itself.
  network_attos   numeric(38,0),
  -- An authorisation can be for several calls of a session, which a sidecar reports together (docs/escrow.md, "Authorisation").
  -- Its key is that of the last call; `authorised_at` is the time of the first.
  -- How many calls are held: those whose ticket has not come.
  calls           integer         not null default 1,
  -- Where several were reported together, by call in the order of numbers: the signer's time in microseconds, and the bound in
  -- nano-dollars. And the numbers of the calls that are held.
  call_micros     bigint[],
  call_nanos      bigint[],
  open_numbers    int8multirange,
  -- Of such a row, or of one that was split from it: when the last of the calls was authorised.
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
-- For the held money of an owner's apps, which is summed under the owner's lock. Ended rows are kept 30 days.
create index authorisations_held on authorisations (app_id) include (bound_attos, network_attos) where state = 'pending';
-- For the run that has a ticket's number.
create index authorisations_runs on authorisations (app_id, user_id, session_id, sequence_number)
  where call_micros is not null;

-- Tickets of users with money lent that came before the report of their call.
create table early_tickets (
  app_id          uuid          not null,
  user_id         uuid          not null,
  session_id      text          not null collate "C",
  sequence_number bigint        not null,
  signed_micros   bigint        not null,
  id              bigint        not null generated always as identity,
  -- Null while it has no price; then its bound is held as pending.
  cost_attos      numeric(38,0),
  booked_at       timestamptz   not null,
  constraint early_tickets_pk primary key (app_id, user_id, session_id, sequence_number, signed_micros, id),
  constraint early_tickets_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade
);
create index early_tickets_by_age on early_tickets (booked_at);

-- Totals and prior calls of each session that was authorised. Amounts by bound, but `ticketed_attos` by cost.
create table authorised_sessions (
  app_id            uuid          not null,
  user_id           uuid          not null,
  session_id        text          not null collate "C",
  session_type      text          not null,
  started_at        timestamptz   not null,
  last_at           timestamptz   not null,
  -- The lowest and the highest number that was allowed, with the signer's time of the first call of each
  -- (Unix seconds, and the nanoseconds within).
  start_sequence    bigint        not null,
  start_seconds     bigint        not null,
  start_nanos       integer       not null,
  top_sequence      bigint        not null,
  top_seconds       bigint        not null,
  top_nanos         integer       not null,
  -- The process of a sidecar that served it first, and since when another one has known it, too: from then on none of
  -- them knows all of its calls by itself.
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
  -- Of calls from before: how many of the session are neither held nor ended in its totals (docs/escrow.md). Calls of later
  -- are all accounted for, so that a hold that was deleted is missed.
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
