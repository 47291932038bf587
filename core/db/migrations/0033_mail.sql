-- The oldest release that runs on it: 0.1.0
-- Mails to people (docs/mail.md). A row is written in the transaction of its cause, with a row of the outbox.
create table mails (
  id            uuid        not null primary key,
  kind          text        not null,
  -- Names the cause, so that a cause that is processed again sends nothing twice.
  once          text        not null,
  email         text        not null,
  status        text        not null,
  attempts      integer     not null default 0,
  last_error    text,
  -- Subject, text and links, sealed by the key-encryption key. Null after the mail has ended.
  sealed_letter bytea,
  created_at    timestamptz not null,
  -- When core gives up.
  expires_at    timestamptz not null,
  ended_at      timestamptz,
  constraint mails_once unique (once),
  -- `kept`: never sent, for the page of platform admins.
  constraint mails_status_known check (status in ('waiting', 'sent', 'failed', 'kept')),
  constraint mails_ended check ((ended_at is not null) = (status in ('sent', 'failed')))
);
-- For the bounds of an address.
create index mails_by_address on mails (email, created_at);
-- For the page, and the deletion of old rows.
create index mails_by_time on mails (created_at, id);
create index mails_waiting on mails (created_at) where status = 'waiting';
