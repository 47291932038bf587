-- Credit lines: the debt that an account may run up, and the payments of debt (docs/escrow-credit.md, "Credit line").
alter table balances
  -- 0 unless a paid plan and a chargeable card are known.
  add column ceiling_attos numeric(38,0) not null default 0,
  -- Whether only a missing card keeps the ceiling at 0.
  add column lacks_card boolean not null default false,
  -- Sum of the payments. The debt is overage_attos - collected_attos.
  add column collected_attos numeric(38,0) not null default 0,
  add constraint balances_ceiling_not_negative check (ceiling_attos >= 0),
  add constraint balances_ceiling_needs_card check (ceiling_attos = 0 or not lacks_card);

-- A payment of debt; negative for a refund or a dispute.
alter table ledger_entries
  add column collected_attos numeric(38,0) not null default 0,
  add constraint ledger_entries_collected_by_payments check ((kind = 'payment') = (collected_attos <> 0)) not valid,
  drop constraint ledger_entries_kind_known,
  add constraint ledger_entries_kind_known
    check (kind in ('grant', 'charge', 'expire', 'adjustment', 'unpriced', 'payment')) not valid,
  drop constraint ledger_entries_sign,
  add constraint ledger_entries_sign check (
    case kind when 'grant' then amount_attos > 0 when 'adjustment' then true when 'unpriced' then amount_attos = 0
    when 'payment' then amount_attos = 0 else amount_attos <= 0 end) not valid;

-- The debt that a user of the app may run up; null means the default.
alter table billing_settings
  add column overage_ceiling_attos numeric(38,0),
  add constraint billing_settings_ceiling_within check (overage_ceiling_attos > 0);
