-- The key of a plan's name takes ß for ss and ς for σ, whatever the case of the letters around them. Of two plans whose names are
-- the same now, the newer one keeps its old key until it gets another name.
with folded as (
  select app_id, id, replace(replace(replace(name_key, 'ß', 'ss'), 'ẞ', 'ss'), 'ς', 'σ') as key,
         row_number() over (
           partition by app_id, replace(replace(replace(name_key, 'ß', 'ss'), 'ẞ', 'ss'), 'ς', 'σ')
           order by created_at, id) as place
  from plans
  where deleted_at is null
)
update plans p
set name_key = f.key
from folded f
where p.app_id = f.app_id and p.id = f.id and f.place = 1 and p.name_key <> f.key
  and not exists (
    select from plans o
    where o.app_id = p.app_id and o.id <> p.id and o.name_key = f.key and o.deleted_at is null);
