-- The payment processor of the deployment. Core stores it at each start; a collector, which has no settings of payments,
-- reads it to find the users with a card that can be charged.
create table payment_processor (
  is_row boolean not null default true,
  kind   text    not null,
  constraint payment_processor_pk primary key (is_row),
  constraint payment_processor_one_row check (is_row),
  constraint payment_processor_known check (kind in ('none', 'simulated', 'stripe'))
);
