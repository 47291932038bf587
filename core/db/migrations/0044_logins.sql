-- Which logins of an account a credential comes from: the number grows when all of them end, at a password reset for
-- example. A credential that is issued while that happens names the old number, and ends with it.
alter table accounts add column login_generation integer not null default 0;
-- Null for sessions that began before: they end by being deleted.
alter table web_sessions add column login_generation integer;
-- What the login of a code descends from; none for codes of earlier releases, whose logins descend from the account.
alter table authorization_codes add column grants text[] not null default '{}';
