-- The oldest release that runs on it: 0.1.0
-- The payment processor that has the checkout; null in rows of older releases, which belong to the one in use.
alter table checkouts add column processor text;
update checkouts set processor = case when processor_id like 'cs\_sim\_%' then 'simulated' else 'stripe' end
where processor_id is not null and ended_at is null;
-- A checkout that was never finished here, at a processor that the deployment uses no more.
alter table processor_differences drop constraint processor_differences_problem_known,
  add constraint processor_differences_problem_known
  check (problem in ('missing_here', 'missing_there', 'amount', 'currency', 'unknown'));
