-- What the metering backend has of each plan, and the lease that keeps syncs of one plan apart.
create table plan_syncs (
  app_id            uuid    not null,
  plan_id           uuid    not null,
  -- The backend's id of the plan as it was last written there.
  openmeter_plan_id text,
  -- The last sync that succeeded.
  last_synced_at    timestamptz,
  -- What was wrong with the last sync; null when it succeeded.
  sync_error        text,
  -- Failures since the last success.
  failures          integer not null default 0,
  -- When a failed sync is repeated; null where that would fail in the same way.
  retry_at          timestamptz,
  -- `plans.updated_at` of what the last sync that ended was of.
  plan_updated_at   timestamptz,
  lease_id          uuid,
  leased_until      timestamptz,
  constraint plan_syncs_pk primary key (app_id, plan_id),
  constraint plan_syncs_plan foreign key (app_id, plan_id) references plans (app_id, id) on delete cascade,
  constraint plan_syncs_lease check ((lease_id is null) = (leased_until is null)),
  constraint plan_syncs_failures_not_negative check (failures >= 0)
);
