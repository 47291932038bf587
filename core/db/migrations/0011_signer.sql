-- Signers that may call sidecars, and records of decisions.

create table signers (
  id              uuid        not null,
  name            text        not null,
  all_apps        boolean     not null,
  may_push_events boolean     not null,
  created_at      timestamptz not null,
  app_id          uuid        references apps (id) on delete cascade,
  constraint signers_pk primary key (id),
  constraint signers_name_once unique (name),
  constraint signers_name_form check (app_id is not null or name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  constraint signers_app_once unique (app_id),
  constraint signers_own_app_only check (app_id is null or not all_apps)
);

create table signer_apps (
  signer_id uuid not null references signers (id) on delete cascade,
  app_id    uuid not null references apps (id) on delete cascade,
  constraint signer_apps_pk primary key (signer_id, app_id)
);

-- Sidecars verify these secrets without core's peppers: `hash` is HMAC-SHA-256 under the row's own random key.
create table signer_secrets (
  id         text        not null,
  signer_id  uuid        not null references signers (id) on delete cascade,
  purpose    text        not null,
  key        bytea       not null,
  hash       bytea       not null,
  created_at timestamptz not null,
  ends_at    timestamptz,
  constraint signer_secrets_pk primary key (id),
  constraint signer_secrets_purpose check (purpose in ('decisions', 'events')),
  constraint signer_secrets_key_length check (octet_length(key) = 32),
  constraint signer_secrets_hash_length check (octet_length(hash) = 32)
);
create index signer_secrets_by_signer on signer_secrets (signer_id);

-- Records of refused and some allowed decisions (docs/sidecars.md), bounded by age and by number for each app.
create table decisions (
  id          text        not null collate "C",
  -- Null if the credential belongs to no app.
  app_id      uuid,
  recorded_at timestamptz not null,
  record      jsonb       not null,
  constraint decisions_pk primary key (id),
  constraint decisions_app foreign key (app_id) references apps (id) on delete cascade
);
create index decisions_by_app on decisions (app_id, recorded_at);
create index decisions_by_age on decisions (recorded_at);
