-- What an outside provider knows of the end users. The primary key and the claim decide who creates a user there: a search at
-- the provider may be seconds behind. A row without provider_user_id is a creation under way, or one that was cut off.
create table provider_users (
  app_id uuid not null references apps (id) on delete cascade,
  external_user_id text not null,
  -- The provider and its address: the users of one directory are unknown to another.
  directory text not null,
  provider_user_id text,
  -- As the provider was told it last.
  email text,
  claim uuid,
  claimed_until timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  primary key (app_id, external_user_id, directory),
  constraint provider_users_claimed_whole check ((claim is null) = (claimed_until is null)),
  constraint provider_users_whole_or_claimed check (provider_user_id is not null or claim is not null)
);
