-- The oldest release that runs on it: 0.1.0
-- A link that creates an account (docs/accounts.md, "Sign up") has an address instead of an account.
alter table password_resets alter column account_id drop not null;
alter table password_resets add column email text;
alter table password_resets add constraint password_resets_purpose check ((account_id is null) <> (email is null));
-- Ends the other links of an address.
create index password_resets_by_email on password_resets (email) where email is not null;
