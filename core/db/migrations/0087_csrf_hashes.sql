-- A session's CSRF token is made from the session's own token. The column holds a hash, for earlier releases, which read it.
update web_sessions set csrf_token = encode(sha256(convert_to(csrf_token, 'UTF8')), 'hex');
