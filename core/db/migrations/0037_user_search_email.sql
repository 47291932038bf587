-- The oldest release that runs on it: 0.1.0
-- For the same search by the e-mail address. A file of its own, so that users can be written between the two indexes.
create index end_users_by_email on end_users (app_id, email text_pattern_ops) where email is not null;
