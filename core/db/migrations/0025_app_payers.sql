-- Who owns an app, and who pays for it (decisions 58 and 59). Every query that needs this reads these views.

-- The first owner of an app. Omits apps without an owner.
create view app_owners as
select a.id as app_id, o.account_id
from apps a
cross join lateral (
  select account_id
  from members
  where app_id = a.id and role = 'owner'
  order by created_at, account_id
  limit 1) o;

-- The account that pays for an app: its first owner. Omits platform-owned apps, and apps without an owner.
create view app_payers as
select o.app_id, o.account_id
from app_owners o
left join billing_settings b on b.app_id = o.app_id
where not coalesce(b.is_platform_owned, false);
