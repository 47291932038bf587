-- When the ticket of a lost call comes, the overage of its estimate goes: an adjustment may take overage back, never more
-- than there is.
alter table ledger_entries drop constraint ledger_entries_overage_from_spend;
alter table ledger_entries add constraint ledger_entries_overage_from_spend check (
  case kind
    when 'charge' then overage_attos >= 0
    when 'adjustment' then overage_attos = 0 or (overage_attos > 0 and amount_attos <= 0) or (overage_attos < 0 and amount_attos >= 0)
    else overage_attos = 0
  end);
alter table balances add constraint balances_overage_not_negative check (overage_attos >= 0);
