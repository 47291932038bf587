-- The terms of plans are append-only as long as their app is there: who deletes an app deletes them with it.
create function refuse_rewrite_of_terms() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and not exists (select from apps where id = old.app_id) then
    return old;
  end if;
  raise exception '% is append-only', tg_table_name using errcode = 'check_violation';
end $$;
drop trigger plan_versions_append_only on plan_versions;
create trigger plan_versions_append_only before update or delete on plan_versions
  for each row execute function refuse_rewrite_of_terms();
drop trigger plan_bundles_append_only on plan_bundles;
create trigger plan_bundles_append_only before update or delete on plan_bundles
  for each row execute function refuse_rewrite_of_terms();
drop trigger platform_cuts_append_only on platform_cuts;
create trigger platform_cuts_append_only before update or delete on platform_cuts
  for each row execute function refuse_rewrite_of_terms();
