-- The escrow (docs/escrow.md): money that is promised and not yet in the ledger. Amounts are atto-dollars.

-- Both are sums of rows below, changed with them under the lock of this row.
alter table balances add column lent_attos    numeric(38,0) not null default 0;
alter table balances add column pending_attos numeric(38,0) not null default 0;
-- After a recall nothing is lent before this instant; calls are reserved one by one.
alter table balances add column lend_after timestamptz;
-- Until then a ticket may come whose authorisation was lost, charged or released: those users' tickets are matched, too.
alter table balances add column late_until timestamptz;
alter table balances add constraint balances_lent_not_negative check (lent_attos >= 0);
alter table balances add constraint balances_pending_not_negative check (pending_attos >= 0);

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
  constraint leases_pk primary key (app_id, user_id, id),
  constraint leases_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint leases_used_within check (used_attos between 0 and amount_attos)
) with (fillfactor = 70);
create unique index leases_one_for_each_process on leases (app_id, user_id, instance);
create index leases_by_end on leases (ends_at);
create index leases_recalled on leases (instance) where recalled_at is not null;

create table authorisations (
  app_id          uuid          not null,
  user_id         uuid          not null,
  session_id      text          not null collate "C",
  sequence_number bigint        not null,
  -- The signer's LastUpdate, microseconds since 1970.
  signed_micros   bigint        not null,
  id              bigint        not null generated always as identity,
  sidecar_id      text          not null collate "C",
  key_id          uuid,
  session_type    text          not null,
  bound_attos     numeric(38,0) not null,
  authorised_at   timestamptz   not null,
  -- pending, released, lost or charged; a settled one is deleted.
  state           text          not null default 'pending',
  state_at        timestamptz,
  proven          boolean       not null default false,
  -- Its ticket is booked and waits for a price: never released.
  ticketed        boolean       not null default false,
  approximate     boolean       not null default false,
  offline         boolean       not null default false,
  constraint authorisations_pk primary key (app_id, user_id, session_id, sequence_number, signed_micros, id),
  constraint authorisations_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint authorisations_bound_not_negative check (bound_attos >= 0),
  constraint authorisations_state_known check (state in ('pending', 'released', 'lost', 'charged'))
) with (fillfactor = 80);
create index authorisations_pending on authorisations (sidecar_id, authorised_at) include (bound_attos)
  where state = 'pending' and not ticketed;
create index authorisations_ticketed on authorisations (bound_attos) where state = 'pending' and ticketed;
create index authorisations_ended on authorisations (state_at) where state <> 'pending';

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
  app_id           uuid          not null,
  user_id          uuid          not null,
  session_id       text          not null collate "C",
  session_type     text          not null,
  started_at       timestamptz   not null,
  last_at          timestamptz   not null,
  -- The lowest and the highest number that was allowed, with the signer's time of the first call of each
  -- (Unix seconds, and the nanoseconds within).
  start_sequence   bigint        not null,
  start_seconds    bigint        not null,
  start_nanos      integer       not null,
  top_sequence     bigint        not null,
  top_seconds      bigint        not null,
  top_nanos        integer       not null,
  -- The process of a sidecar that served it first, and since when another one has known it, too: from then on none of
  -- them knows all of its calls by itself.
  instance         uuid          not null,
  shared_at        timestamptz,
  authorised_count bigint        not null default 0,
  authorised_attos numeric(38,0) not null default 0,
  ticketed_count   bigint        not null default 0,
  ticketed_attos   numeric(38,0) not null default 0,
  lost_count       bigint        not null default 0,
  lost_attos       numeric(38,0) not null default 0,
  charged_count    bigint        not null default 0,
  charged_attos    numeric(38,0) not null default 0,
  released_count   bigint        not null default 0,
  released_attos   numeric(38,0) not null default 0,
  late_count       bigint        not null default 0,
  late_attos       numeric(38,0) not null default 0,
  constraint authorised_sessions_pk primary key (app_id, user_id, session_id),
  constraint authorised_sessions_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade
) with (fillfactor = 70);
create index authorised_sessions_by_start on authorised_sessions (app_id, started_at);
create index authorised_sessions_shared on authorised_sessions (instance, shared_at) where shared_at is not null;
-- For the report of losses.
create index authorised_sessions_lossy on authorised_sessions (app_id, started_at)
  where lost_count + charged_count + released_count + late_count > 0;
create index authorised_sessions_by_user on authorised_sessions (app_id, user_id, last_at);
create index authorised_sessions_by_age on authorised_sessions (last_at) where session_type not in ('live', 'lv2v');
