-- What the signer itself says a ticket cost. Kept as it came, to be compared; a ticket is charged by its wei and our rate.
alter table tickets add column stated_usd numeric(48,18);
