-- The invitations that stand: an invitation stands as long as whoever made it may make it, and its app is there. Its end is
-- compared by the reader, whose clock it is.
create view standing_invitations as
select i.app_id, i.id, i.email, i.role, i.created_at, i.expires_at, c.client_id, a.name as app_name,
       coalesce(p.email, '') as invited_by
from invitations i
join apps a on a.id = i.app_id and a.status <> 'deleted'
join clients c on c.app_id = i.app_id and c.kind = 'public'
join accounts p on p.id = i.invited_by
where p.is_platform_admin
   or exists (select from members m
              where m.app_id = i.app_id and m.account_id = i.invited_by
                and (m.role = 'owner' or (m.role = 'admin' and i.role <> 'owner')));
