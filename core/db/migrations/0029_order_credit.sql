-- What earlier moves left of paid periods lowers the first price of a later order (docs/decisions/64.md). In whole cents.
alter table plan_orders
  add column credit_attos numeric(38,0) not null default 0,
  add constraint plan_orders_credit check (credit_attos >= 0 and credit_attos < price_attos or credit_attos = 0);
