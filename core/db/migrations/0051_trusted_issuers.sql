-- The issuers whose tokens stand for an app's users. `generation` counts changes: what was admitted by an earlier one ends.
create table trusted_issuers (
  app_id        uuid        not null references apps (id) on delete cascade,
  id            uuid        not null,
  generation    integer     not null default 1,
  issuer        text        not null,
  audiences     text[]      not null,
  client_claim  text,
  client_values text[]      not null,
  user_claim    text        not null,
  jwks_uri      text,
  created_at    timestamptz not null,
  updated_at    timestamptz not null,
  constraint trusted_issuers_pk primary key (app_id, id),
  constraint trusted_issuers_client check ((client_claim is null) = (cardinality(client_values) = 0)),
  constraint trusted_issuers_narrow check (cardinality(audiences) > 0 or client_claim is not null)
);
create index trusted_issuers_by_issuer on trusted_issuers (issuer);

-- Each combination that a token may match belongs to one app. Empty text stands for a condition that is not there.
create table trusted_issuer_matches (
  app_id            uuid not null,
  trusted_issuer_id uuid not null,
  issuer            text not null,
  audience          text not null,
  claim             text not null,
  value             text not null,
  constraint trusted_issuer_matches_one_app primary key (issuer, audience, claim, value),
  constraint trusted_issuer_matches_of_issuer foreign key (app_id, trusted_issuer_id)
    references trusted_issuers (app_id, id) on delete cascade
);
create index trusted_issuer_matches_by_issuer on trusted_issuer_matches (app_id, trusted_issuer_id);
