"""A backend's round with the generated client, without casts: create a user, mint a token, read the
balance."""

import json
import sys

from tollgate_client import AuthenticatedClient
from tollgate_client.api.allowances import create_grant
from tollgate_client.api.end_user import get_own_balance
from tollgate_client.api.tokens import mint_user_token
from tollgate_client.api.users import upsert_user
from tollgate_client.models import (
    Balance,
    CreateGrantBody,
    FeatureUnknownProblem,
    MintUserTokenBody,
    UpsertUserBody,
    User,
    UserToken,
)

base_url, client_id, basic = sys.argv[1:]
app = AuthenticatedClient(base_url=base_url, token=basic, prefix="Basic")

user = upsert_user.sync(client_id, client=app, body=UpsertUserBody(external_user_id="grace"))
if not isinstance(user, User):
    raise SystemExit(f"no user: {user}")

token = mint_user_token.sync(
    client_id, user.external_user_id, client=app, body=MintUserTokenBody(scope="sign:job")
)
if not isinstance(token, UserToken):
    raise SystemExit(f"no token: {token}")

own = AuthenticatedClient(base_url=base_url, token=token.access_token)
balance = get_own_balance.sync(client=own)
if not isinstance(balance, Balance):
    raise SystemExit(f"no balance: {balance}")

refused = create_grant.sync(
    client_id,
    user.external_user_id,
    client=app,
    body=CreateGrantBody(amount_usd_micros="5", feature_key="nothing"),
)
is_unknown: bool = isinstance(refused, FeatureUnknownProblem) and refused.code == "feature_unknown"

micros: int = int(balance.balance_usd_micros)
print(json.dumps({"externalUserId": user.external_user_id, "micros": str(micros), "isUnknown": is_unknown}))
