-- The last checkpoint and the last root of each app: an end that was cut off is missed, and what follows names what is gone.
create table book_heads (
  app_id uuid   not null,
  kind   text   not null,
  -- Of a checkpoint its number, of a root its day, in days since 1970.
  number bigint not null,
  -- Of a checkpoint its head, of a root the SHA-256 of its statement.
  hash   bytea  not null,
  constraint book_heads_pk primary key (app_id, kind),
  constraint book_heads_kind_known check (kind in ('checkpoint', 'root'))
);
insert into book_heads (app_id, kind, number, hash)
select distinct on (app_id) app_id, 'checkpoint', number, head
from checkpoints
order by app_id, number desc;
insert into book_heads (app_id, kind, number, hash)
select distinct on (app_id) app_id, 'root', day - date '1970-01-01', sha256(convert_to(statement, 'UTF8'))
from receipt_roots
order by app_id, day desc;

-- The ends of the price chain and of the roots, as a checkpoint found them. Null in checkpoints from before.
alter table checkpoints
  add column prices       bigint,
  add column prices_hash  bytea,
  add column receipt_day  date,
  add column receipt_hash bytea;
