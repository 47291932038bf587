-- For the held money of an owner's apps, which is summed under the owner's lock. Ended rows are kept 30 days.
create index authorisations_held on authorisations (app_id) include (bound_attos, network_attos) where state = 'pending';
