-- The oldest release that runs on it: 0.1.0
-- For the search of an app's users by the beginning of their external id. An index of the database's own order finds a beginning
-- only where that order is C.
create index end_users_by_external_id on end_users (app_id, external_user_id text_pattern_ops);
