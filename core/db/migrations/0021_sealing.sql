-- A reply that holds a secret is kept for a day; then the row remains and says that its key was used.
alter table idempotency_keys
  add column holds_secret boolean not null default false,
  alter column sealed_reply drop not null,
  add constraint idempotency_keys_only_secrets_go check (sealed_reply is not null or holds_secret);
update idempotency_keys set holds_secret = true
  where scope not like '%:grants' and scope not like 'operator:adjustments:%';
create index idempotency_keys_with_secret on idempotency_keys (created_at)
  where holds_secret and sealed_reply is not null;
