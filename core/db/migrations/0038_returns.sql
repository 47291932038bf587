-- The oldest release that runs on it: 0.1.0
-- When a return was last tried to be booked: the others come first, so that those that fail hide none.
alter table payment_returns add column tried_at timestamptz;
drop index payment_returns_to_book;
create index payment_returns_to_book on payment_returns (coalesce(tried_at, created_at)) where booked_at is null;
-- A charge of a card is a fact, except for its state and what follows from it.
create trigger payment_attempts_immutable before update of app_id, user_id, id, purpose, subject_id, amount_cents, fee_cents, description, plane,
  account_id, processor, customer_id, card_id, created_at or delete on payment_attempts for each row execute function refuse_rewrite();
