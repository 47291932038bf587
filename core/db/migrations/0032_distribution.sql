-- The oldest release that runs on it: 0.1.0
-- What Citus does not accept in distributed and reference tables: identity columns, and foreign keys to tables of another
-- kind (docs/citus.md). Apps, users and keys keep their rows for ever, so the dropped keys had no deletions to follow.

alter table authorisations alter column id drop identity;
create sequence authorisations_ids owned by authorisations.id;
select setval('authorisations_ids', greatest((select max(id) from authorisations), 1));
alter table authorisations alter column id set default nextval('authorisations_ids');

alter table early_tickets alter column id drop identity;
create sequence early_tickets_ids owned by early_tickets.id;
select setval('early_tickets_ids', greatest((select max(id) from early_tickets), 1));
alter table early_tickets alter column id set default nextval('early_tickets_ids');

alter table plan_versions alter column id drop identity;
create sequence plan_versions_ids owned by plan_versions.id;
select setval('plan_versions_ids', greatest((select max(id) from plan_versions), 1));
alter table plan_versions alter column id set default nextval('plan_versions_ids');

alter table rates alter column id drop identity;
create sequence rates_ids owned by rates.id;
select setval('rates_ids', greatest((select max(id) from rates), 1));
alter table rates alter column id set default nextval('rates_ids');

alter table limits drop constraint limits_key;
alter table api_keys drop constraint api_keys_subscription;

alter table leases drop constraint leases_user;
alter table authorisations drop constraint authorisations_user;
alter table early_tickets drop constraint early_tickets_user;
alter table authorised_sessions drop constraint authorised_sessions_user;
alter table limits drop constraint limits_user;
alter table owner_holds drop constraint owner_holds_user;

-- Core calls this before it commits on a Citus cluster. Citus counts the update, even without a row, as a write of the
-- coordinator, and then commits it and the writes of a worker in two phases.
create function commit_in_two_phases() returns void language plpgsql as $$
begin
  if current_setting('transaction_read_only') = 'off' then
    update plan_syncs
    set failures = failures
    where app_id = '00000000-0000-0000-0000-000000000000' and plan_id = '00000000-0000-0000-0000-000000000000';
  end if;
end $$;
