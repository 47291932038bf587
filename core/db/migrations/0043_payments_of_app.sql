-- The oldest release that runs on it: 0.1.0
-- The list of an app's payments, newest first.
create index payments_by_app on payments (app_id, created_at, id);
