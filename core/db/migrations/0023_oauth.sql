-- Open device codes are bounded per client and per address that asked for them.
alter table device_codes add column address text not null default '';
create index device_codes_pending_by_client on device_codes (client_id) where status = 'pending';
create index device_codes_pending_by_address on device_codes (address) where status = 'pending' and address <> '';
