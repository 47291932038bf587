-- A hash of the name and redirect URIs that a person saw when consenting to a client that registered itself; null for an
-- app's own client. A consent counts only while the client still has them. Consents of before are asked for once more.
alter table consents add column client_hash bytea;
