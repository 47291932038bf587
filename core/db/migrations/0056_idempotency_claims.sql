-- Which requests with an Idempotency-Key run now that change something elsewhere before they have an answer here. The lock of a
-- transaction cannot hold others off so long. A claim whose process died is over by itself.
create table idempotency_claims (
  scope text not null,
  key text not null,
  claim uuid not null,
  claimed_until timestamptz not null,
  constraint idempotency_claims_pk primary key (scope, key)
);
