-- The export of the whole log, and the deletion of what is older than AUDIT_RETENTION_DAYS.
create index audit_log_by_time on audit_log (created_at, id);
-- What operators did to an app belongs to no app and names it.
create index audit_log_by_client on audit_log ((details ->> 'clientId'), created_at) where app_id is null;
-- For the deletion of expired ones, in batches.
create index password_resets_by_end on password_resets (expires_at);
