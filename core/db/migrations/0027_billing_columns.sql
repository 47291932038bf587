-- Columns and an index of billing that no query reads, and indexes for queries that had none.

-- The processor's own fee, and its object, of which `payment_id` and `fee_reference` are what is compared.
alter table processor_movements
  drop column fee,
  drop column source;

alter table prorations
  drop column created_at;

-- The audit log has the author of a correction.
alter table invoices
  drop constraint invoices_of_kind,
  drop column author,
  add constraint invoices_of_kind check (
    case kind
      when 'invoice' then num_nonnulls(invoice_id, note) = 0 and num_nulls(from_seq, through_seq) = 0
        and from_seq <= through_seq and total_cents >= 0
      else invoice_id is not null and num_nonnulls(from_seq, through_seq) = 0 and total_cents < 0
    end);

-- A subject's undecided or paid attempt is found by payment_attempts_once.
drop index payment_attempts_by_subject;

-- For the page of an invoice, whose link has only the invoice's id.
create index invoices_by_id on invoices (id);
-- For prorations that are on no invoice yet.
create index invoice_lines_proration on invoice_lines (app_id, user_id, period_start) where kind = 'proration';
-- For the first customer of an account, from which on the account is compared.
create index processor_customers_by_account on processor_customers (processor, plane, account_id, created_at);
