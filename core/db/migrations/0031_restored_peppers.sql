-- The oldest release that runs on it: 0.1.0
-- Peppers of the deployments whose backups were restored here (docs/backup.md), sealed by the key-encryption key.
create table restored_peppers (
  id            text        not null primary key,
  sealed_pepper bytea       not null,
  restored_at   timestamptz not null,
  constraint restored_peppers_id_allowed check (id ~ '^[A-Za-z0-9_-]{1,32}$')
);
