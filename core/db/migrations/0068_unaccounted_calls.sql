-- A file of its own, so that the table is not locked meanwhile. Few sessions have any.
with held as (
  select app_id, user_id, session_id,
         count(*) filter (where state = 'pending' and not ticketed) - count(*) filter (where state = 'charged' and ticketed) as calls
  from authorisations
  where sidecar_id <> ''
  group by app_id, user_id, session_id
), different as (
  select app_id, user_id, session_id,
         s.authorised_count - s.ticketed_count - s.lost_count - s.charged_count - s.released_count - coalesce(h.calls, 0) as calls
  from authorised_sessions s
  left join held h using (app_id, user_id, session_id)
)
update authorised_sessions s
set unaccounted_count = d.calls
from different d
where d.calls <> 0 and s.app_id = d.app_id and s.user_id = d.user_id and s.session_id = d.session_id;
