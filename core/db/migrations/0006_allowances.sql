-- The ledger, limits, and what owners may cost. Amounts are atto-dollars (10^-18 USD).

-- Credits. Only the remaining amount and the end change.
create table grants (
  app_id          uuid          not null,
  user_id         uuid          not null,
  id              uuid          not null,
  kind            text          not null,
  source          text          not null,
  feature_key     text,
  amount_attos    numeric(38,0) not null,
  remaining_attos numeric(38,0) not null,
  priority        smallint      not null,
  effective_at    timestamptz   not null,
  expires_at      timestamptz,
  expired_at      timestamptz,
  created_at      timestamptz   not null,
  constraint grants_pk primary key (app_id, user_id, id),
  constraint grants_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint grants_source_known check (source in ('trial', 'manual', 'promo', 'plan_adjustment')),
  constraint grants_amount_positive check (amount_attos > 0),
  constraint grants_remaining_within check (remaining_attos between 0 and amount_attos),
  constraint grants_included_ends check (kind <> 'included' or expires_at is not null),
  constraint grants_kind_known check (kind in ('included', 'grant', 'adjustment'))
) with (fillfactor = 70);
-- Included usage is given once for each period.
create unique index grants_included_once on grants (app_id, user_id, effective_at) where kind = 'included';
create index grants_to_expire on grants (expires_at) where expired_at is null and expires_at is not null;
create index grants_outstanding on grants (app_id) where kind = 'grant' and expired_at is null;
create trigger grants_immutable before update of app_id, user_id, id, kind, source, feature_key, amount_attos, priority,
    effective_at, created_at or delete on grants
  for each row execute function refuse_rewrite();
create trigger grants_end_fixed before update of expires_at on grants
  for each row when (old.kind <> 'included' or new.expires_at is null or new.expires_at > old.expires_at)
  execute function refuse_rewrite();

-- Corrections of balances, with reason and author. Rows are never edited.
create table adjustments (
  app_id       uuid          not null,
  user_id      uuid          not null,
  id           uuid          not null,
  amount_attos numeric(38,0) not null,
  reason       text          not null,
  author       text          not null,
  -- The corrected ticket, if any.
  event_id     text          collate "C",
  created_at   timestamptz   not null,
  -- Held money at the time of a debit, which no debit takes.
  held_attos   numeric(38,0) not null,
  constraint adjustments_pk primary key (app_id, user_id, id),
  constraint adjustments_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint adjustments_amount_not_zero check (amount_attos <> 0),
  constraint adjustments_explained check (reason <> '' and author <> '')
);
create trigger adjustments_append_only before update or delete on adjustments
  for each row execute function refuse_rewrite();

-- Every change of a balance and its cause. A charge covers all tickets of a user in one ingest batch.
create table ledger_entries (
  app_id              uuid            not null,
  user_id             uuid            not null,
  seq                 bigint          not null,
  kind                text            not null,
  amount_attos        numeric(38,0)   not null,
  overage_attos       numeric(38,0)   not null,
  balance_after_attos numeric(38,0)   not null,
  cause_id            uuid            not null,
  created_at          timestamptz     not null,
  -- Readers that follow the ledger fetch what a snapshot did not see yet. They need the transaction, because times and
  -- numbers of an app are not in commit order.
  xact                bigint          not null default (pg_current_xact_id()::text::bigint),
  -- Of a charge: number of its tickets.
  ticket_count        integer,
  -- Changed credits and the amounts. Null for a grant and an expiry, whose credit is the cause.
  credit_ids          uuid[],
  credit_attos        numeric(38,0)[],
  -- Of a charge: the part that counts as consumption of the running period.
  period_attos        numeric(38,0)   not null default 0,
  -- Change of the number of unpriced tickets.
  unpriced_change     integer         not null default 0,
  -- Of a charge: when the rates of its tickets were read. Null if the prices were fixed elsewhere.
  rates_known_at      timestamptz,
  -- Of a charge: SHA-256 of its tickets (docs/ledger.md, "Chain").
  tickets_hash        bytea,
  hash                bytea           not null,
  constraint ledger_entries_pk primary key (app_id, user_id, seq),
  constraint ledger_entries_balance_not_negative check (balance_after_attos >= 0),
  constraint ledger_entries_tickets_of_charges check (
    (kind = 'charge') = (ticket_count is not null) and ticket_count > 0),
  constraint ledger_entries_credits_whole check (
    (credit_ids is null) = (credit_attos is null)
    and coalesce(cardinality(credit_ids), 0) = coalesce(cardinality(credit_attos), 0)),
  constraint ledger_entries_kind_known
    check (kind in ('grant', 'charge', 'expire', 'adjustment', 'unpriced')),
  constraint ledger_entries_sign check (
    case kind when 'grant' then amount_attos > 0 when 'adjustment' then true when 'unpriced' then amount_attos = 0
    else amount_attos <= 0 end),
  constraint ledger_entries_overage_from_spend check (
    case kind
      when 'charge' then overage_attos >= 0
      when 'adjustment' then overage_attos = 0 or (overage_attos > 0 and amount_attos <= 0) or (overage_attos < 0 and amount_attos >= 0)
      else overage_attos = 0
    end)
);
create index ledger_entries_by_xact on ledger_entries (app_id, xact);
create index ledger_entries_by_cause on ledger_entries using brin (
  cause_id uuid_bloom_ops(n_distinct_per_range = 1000, false_positive_rate = 0.001))
  with (pages_per_range = 32, autosummarize = on);
create trigger ledger_entries_append_only before update or delete on ledger_entries
  for each row execute function refuse_rewrite();

-- Head of each user's ledger: always the fold of its entries.
create table balances (
  app_id                uuid          not null,
  user_id               uuid          not null,
  seq                   bigint        not null default 0,
  balance_attos         numeric(38,0) not null default 0,
  granted_attos         numeric(38,0) not null default 0,
  topup_attos           numeric(38,0) not null default 0,
  consumed_attos        numeric(38,0) not null default 0,
  overage_attos         numeric(38,0) not null default 0,
  expired_attos         numeric(38,0) not null default 0,
  period_start          timestamptz   not null,
  period_end            timestamptz   not null,
  -- Tickets signed from this instant on belong to the period. In a user's first period that is any time, because the
  -- ticket that provisions a user was signed earlier.
  period_counts_from    timestamptz   not null,
  period_consumed_attos numeric(38,0) not null default 0,
  updated_at            timestamptz   not null,
  adjusted_attos        numeric(38,0) not null default 0,
  -- Sums of leases and pending authorisations, changed with them under the lock of this row.
  lent_attos            numeric(38,0) not null default 0,
  pending_attos         numeric(38,0) not null default 0,
  -- After a recall, nothing is lent before this instant.
  lend_after            timestamptz,
  -- Until then, tickets are also matched with authorisations that were lost, charged or released.
  late_until            timestamptz,
  -- No entry is booked earlier, so that a past balance never changes after it was returned.
  booked_through        timestamptz   not null default 'epoch',
  -- The hash of the last entry.
  head_hash             bytea,
  constraint balances_pk primary key (app_id, user_id),
  constraint balances_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint balances_not_negative check (balance_attos >= 0),
  constraint balances_add_up check (
    granted_attos + adjusted_attos = balance_attos + (consumed_attos - overage_attos) + expired_attos),
  constraint balances_lent_not_negative check (lent_attos >= 0),
  constraint balances_pending_not_negative check (pending_attos >= 0),
  constraint balances_overage_not_negative check (overage_attos >= 0)
) with (fillfactor = 70);
-- For finding periods that are over. Only entering a period changes the column.
create index balances_by_period_end on balances (period_end);

-- Periods that accounts have entered, with their terms.
create table periods (
  app_id         uuid          not null,
  user_id        uuid          not null,
  starts_at      timestamptz   not null,
  ends_at        timestamptz   not null,
  counts_from    timestamptz   not null,
  entered_at     timestamptz   not null,
  -- The last entry before the period.
  after_seq      bigint        not null,
  plan_id        uuid          not null,
  plan_version   integer       not null,
  included_attos numeric(38,0) not null,
  -- Included usage that was not given, because free plans had given it in the same calendar period (docs/subscriptions.md,
  -- "Periods").
  withheld_attos numeric(38,0) not null,
  constraint periods_pk primary key (app_id, user_id, starts_at),
  constraint periods_whole check (starts_at < ends_at and included_attos >= 0),
  constraint periods_withheld_within check (withheld_attos between 0 and included_attos)
);
create trigger periods_append_only before update or delete on periods
  for each row execute function refuse_rewrite();

-- Maximum of unspent manual credit of an app. `bound_attos` is at least the current sum: it grows with each credit and is
-- recomputed before it would exceed the maximum.
create table credit_quotas (
  app_id      uuid          not null references apps (id) on delete cascade,
  max_attos   numeric(38,0),
  bound_attos numeric(38,0) not null,
  updated_at  timestamptz   not null,
  constraint credit_quotas_pk primary key (app_id),
  constraint credit_quotas_max_not_negative check (max_attos >= 0),
  constraint credit_quotas_bound_not_negative check (bound_attos >= 0)
);

-- Limits of users and keys with their counts (docs/limits-of-users.md), changed under the lock of the user's balance. Amounts are
-- atto-dollars.
create table limits (
  app_id            uuid          not null,
  user_id           uuid          not null,
  -- The user, or one of the user's keys.
  subject_id        uuid          not null,
  key_id            uuid          generated always as (nullif(subject_id, user_id)) stored,
  -- Null means no limit.
  day_attos_max     numeric(38,0),
  session_attos_max numeric(38,0),
  minute_calls_max  integer,
  sessions_max      integer,
  -- [{"type": "live", "app": "", "maxWei": "1300"}]; an empty app means every application.
  price_ceilings    jsonb         not null,
  -- UTC day and minute of the counts.
  day               date          not null,
  day_attos         numeric(38,0) not null default 0,
  minute            timestamptz   not null,
  minute_calls      integer       not null default 0,
  updated_at        timestamptz   not null,
  constraint limits_pk primary key (app_id, user_id, subject_id),
  constraint limits_user foreign key (app_id, user_id) references end_users (app_id, id) on delete cascade,
  constraint limits_key foreign key (app_id, key_id) references api_keys (app_id, id) on delete cascade,
  constraint limits_day_positive check (day_attos_max > 0),
  constraint limits_session_positive check (session_attos_max > 0),
  constraint limits_calls_positive check (minute_calls_max > 0),
  constraint limits_sessions_positive check (sessions_max > 0),
  constraint limits_counts_not_negative check (day_attos >= 0 and minute_calls >= 0)
) with (fillfactor = 70);
-- For the cascade from api_keys.
create index limits_by_key on limits (app_id, key_id) where key_id is not null;

create table limit_sessions (
  app_id       uuid          not null,
  user_id      uuid          not null,
  subject_id   uuid          not null,
  session_id   text          not null collate "C",
  spent_attos  numeric(38,0) not null,
  last_call_at timestamptz   not null,
  constraint limit_sessions_pk primary key (app_id, user_id, subject_id, session_id),
  constraint limit_sessions_limits foreign key (app_id, user_id, subject_id)
    references limits (app_id, user_id, subject_id) on delete cascade,
  constraint limit_sessions_spent_not_negative check (spent_attos >= 0)
) with (fillfactor = 70);
create index limit_sessions_by_call on limit_sessions (app_id, user_id, subject_id, last_call_at);
create index limit_sessions_by_age on limit_sessions (last_call_at);

-- One row for each owner whose apps have leases or reservations. The bound grows with each of them and is recomputed from
-- network costs and held money when it is reached or old.
create table network_exposures (
  owner_id    uuid          not null,
  -- Null means the deployment's UNPAID_NETWORK_USD.
  max_attos   numeric(38,0),
  bound_attos numeric(38,0) not null default 0,
  counted_at  timestamptz,
  constraint network_exposures_pk primary key (owner_id),
  constraint network_exposures_max_not_negative check (max_attos >= 0),
  constraint network_exposures_bound_not_negative check (bound_attos >= 0)
) with (fillfactor = 70);
