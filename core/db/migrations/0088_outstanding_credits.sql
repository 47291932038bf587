-- What remains of a credit changes with each charge. Where an index depends on it, a charge writes a new entry in each
-- index of the table: twice the processor time and three times the WAL. Counting anew reads spent credits as well.
drop index grants_outstanding;
create index grants_outstanding on grants (app_id) where kind = 'grant' and expired_at is null;
