-- Since when a key signs: the schedule of rotation counts from there.
alter table signing_keys add column activated_at timestamptz;
update signing_keys set activated_at = created_at where status = 'active';
