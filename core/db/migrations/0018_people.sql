-- One form of e-mail addresses, held by the database; outside identities that wait for their account's own password;
-- logins through a provider that were used; bounded records of failed logins.

-- The addresses that had to give way, so that the rule could hold for all. Core takes an address back into use when it
-- can (core/identity/accounts/set-aside.ts), and names the rest in its log at every start.
create table set_aside_addresses (
  account_id uuid        not null references accounts (id) on delete cascade,
  email      text        not null,
  reason     text        not null,
  created_at timestamptz not null,
  constraint set_aside_addresses_pk primary key (account_id),
  constraint set_aside_addresses_reason_known check (reason in ('not_normal', 'taken'))
);

drop index accounts_email_unique;

create temporary table normal_addresses on commit drop as
select id, email, created_at,
       -- In the "C" collation only ASCII letters have a lower case.
       lower(btrim(email) collate "C") collate "C" as normal
from accounts;

-- Of two accounts with one address the older keeps it.
insert into set_aside_addresses (account_id, email, reason, created_at)
select id, email, case when is_normal then 'taken' else 'not_normal' end, now()
from (
  select id, email,
         normal ~ '^[a-z0-9!#$%&''*+/=?^_`{|}~.-]{1,64}@([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'
           and octet_length(normal) <= 254 and normal !~ '[@.][0-9]+$' as is_normal,
         row_number() over (partition by normal order by created_at, id) as place
  from normal_addresses
) as ranked
where not is_normal or place > 1;

update accounts a
set email = case when s.account_id is null then n.normal else a.id::text || '@set-aside.invalid' end
from normal_addresses n
left join set_aside_addresses s on s.account_id = n.id
where n.id = a.id;

alter table accounts
  alter column email type text collate "C",
  add constraint accounts_email_normal check (
    email ~ '^[a-z0-9!#$%&''*+/=?^_`{|}~.-]{1,64}@([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'
    and octet_length(email) <= 254 and email !~ '[@.][0-9]+$');
create unique index accounts_email_unique on accounts (email);

-- An outside identity whose verified address belongs to an account already. It is linked by that account's own password.
create table identity_links (
  token_hash bytea       not null,
  account_id uuid        not null references accounts (id) on delete cascade,
  issuer     text        not null,
  subject    text        not null,
  attempts   integer     not null default 0,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  constraint identity_links_pk primary key (token_hash)
);
create index identity_links_by_end on identity_links (expires_at);

-- The answer of a provider works once.
create table used_provider_logins (
  state_hash bytea       not null,
  expires_at timestamptz not null,
  constraint used_provider_logins_pk primary key (state_hash)
);
create index used_provider_logins_by_end on used_provider_logins (expires_at);
