-- Money that came for a subject that another attempt has paid goes back (docs/collection.md).
alter table payment_attempts
  -- Since when the money of a failed attempt waits to be refunded; null without any. Then check_at is when it is tried next.
  add column surplus_at timestamptz,
  -- Calls that tried to refund it.
  add column refund_calls integer not null default 0,
  add constraint payment_attempts_surplus check (surplus_at is null or (state = 'failed' and processor_id is not null));
create index payment_attempts_to_refund on payment_attempts (check_at) where surplus_at is not null;
-- For comparisons with the processor.
create index payment_attempts_paid_twice on payment_attempts (processor_id) where failure = 'paid_twice';
