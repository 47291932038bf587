-- How tickets reach us is a fact of the deployment. Only an app with a signer of its own (dmz_url) says it for itself;
-- null is as the deployment does. metering_mode stays for processes of the version before.
alter table apps
  add column signer_metering_mode text,
  add constraint apps_signer_metering_mode_known check (signer_metering_mode in ('stream', 'direct'));

update apps
set signer_metering_mode = metering_mode
where dmz_url <> '';
