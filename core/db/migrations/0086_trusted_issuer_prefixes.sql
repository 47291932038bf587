-- Stands before the user claim of the issuer's tokens in external ids; empty for none.
alter table trusted_issuers add column user_prefix text not null default '';
