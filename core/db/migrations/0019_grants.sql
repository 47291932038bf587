-- What a credential descends from, and which of those things have ended (docs/revocation.md).
create table grant_ends (
  id          text        not null,
  -- Of what was issued before this instant; of everything for things that do not go on, such as a login.
  ends_before timestamptz not null default 'infinity',
  cause       text        not null default 'token_revoked',
  ended_at    timestamptz not null default now(),
  -- When the last credential that can descend from it is dead; null keeps the row.
  expires_at  timestamptz,
  constraint grant_ends_pk primary key (id)
);
create index grant_ends_by_expiry on grant_ends (expires_at) where expires_at is not null;
create index grant_ends_by_time on grant_ends (ended_at);

-- Those of `ids` that have ended for what was issued at `issued_at`: the one rule by which credentials are judged.
create function ended_grants(ids text[], issued_at timestamptz) returns text[]
language sql stable parallel safe
as $$ select array(select id from grant_ends where id = any(ids) and ends_before > issued_at) $$;

insert into grant_ends (id, expires_at) select jti, expires_at from revoked_tokens;
drop table revoked_tokens;
-- Cores of earlier releases, which may still run, read and write revocations here.
create view revoked_tokens as
  select id as jti, expires_at from grant_ends where ends_before = 'infinity';

-- Ids as in grant_ends, of what a credential was got with.
alter table api_keys
  add column grants text[] not null default '{}',
  add column refused_at timestamptz;
alter table signer_sessions add column grants text[] not null default '{}';
alter table token_families add column grants text[] not null default '{}';
alter table device_codes add column grants text[] not null default '{}';
create index api_keys_by_grant on api_keys using gin (grants) where status = 'active';
