-- Subscriptions whose payment failed (docs/subscriptions.md, "Past due").

alter table subscriptions drop constraint subscriptions_status_known;
alter table subscriptions add constraint subscriptions_status_known check (status in ('active', 'past_due'));

-- `unpaid`: the last attempt to collect failed, and the user moved to Starter.
alter table subscription_history drop constraint subscription_history_reason_known;
alter table subscription_history
  add constraint subscription_history_reason_known check (reason in ('change', 'cancel', 'unpaid'));
