-- The signer that an app's owners make for it: it signs for that app and for no other (docs/decisions/53.md). Its name is
-- the app's client id, which no signer of an operator can have.

alter table signers
  add column app_id uuid references apps (id) on delete cascade,
  drop constraint signers_name_form,
  add constraint signers_name_form check (app_id is not null or name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  add constraint signers_app_once unique (app_id),
  add constraint signers_own_app_only check (app_id is null or not all_apps);
