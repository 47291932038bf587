-- The oldest release that runs on it: 0.1.0
-- A customer that the processor has deleted is replaced at the next checkout. Checkouts that were paid before name a former id.
alter table processor_customers
  -- When core learned that the processor has no such customer; null if it has one.
  add column gone_at timestamptz,
  add column former_ids text[] not null default '{}',
  add constraint processor_customers_gone_has_no_card check (gone_at is null or card_id is null);
