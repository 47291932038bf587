-- The terms that apps sell by, chained as the entries of the ledger are (docs/ledger.md, "Chain of prices"): one item for each
-- version of a plan with its bundles, and for each cut. Rows from before are chained when a core starts.
create table price_chain (
  app_id uuid   not null,
  number bigint not null,
  -- "plan_version PLAN VERSION" or "cut SINCE".
  item   text   not null collate "C",
  -- The columns of the row as texts, so that the original of an edited row is known.
  facts  jsonb  not null,
  -- SHA-256 of the hash before, the app, the number, the item and its facts.
  hash   bytea  not null,
  constraint price_chain_pk primary key (app_id, number),
  constraint price_chain_item_unique unique (app_id, item),
  constraint price_chain_app foreign key (app_id) references apps (id) on delete cascade
);
create trigger price_chain_append_only before update or delete on price_chain
  for each row execute function refuse_rewrite_of_terms();

-- The last item of each app. Its row is locked to append, and shows an end that was cut off.
create table price_heads (
  app_id uuid   not null,
  number bigint not null,
  hash   bytea  not null,
  constraint price_heads_pk primary key (app_id),
  constraint price_heads_app foreign key (app_id) references apps (id) on delete cascade
);
