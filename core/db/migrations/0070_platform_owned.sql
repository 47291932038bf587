-- Apps that operators and platform admins make are platform-owned (docs/billing.md). The right of such an app's M2M client to
-- create users of every app (docs/builder-api.md) still needs the explicit mark. Marked apps keep it.
alter table billing_settings add column serves_every_app boolean not null default false;
update billing_settings set serves_every_app = true where is_platform_owned;
