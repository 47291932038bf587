import type {
  CredentialRecord,
  DecisionRecord,
  LeaseRecord,
  MoneyRecord,
  PriorCallRecord,
  SessionRecord,
} from './record.ts'

/** Explains a decision in sentences: its result, user, call, figures and rule. */
export function explain(record: DecisionRecord): string[] {
  const { credential, session, money } = record
  return [
    headline(record),
    ...credentialSentences(credential),
    ...(session ? sessionSentences(session) : []),
    ...(money ? moneySentences(money) : []),
    rules[record.rule] ?? `The rule is ${record.rule}.`,
  ]
}

function headline(record: DecisionRecord): string {
  const { status, code, reason, sidecarId, decidedAt, durationMicros } = record
  const verdict = status === 200 ? 'Allowed' : `Refused with ${status} ${code} (${reason})`
  return `${verdict} by the sidecar ${sidecarId} at ${decidedAt}, in ${durationMicros / 1000} ms.`
}

const credentialKinds: Readonly<Record<string, string>> = {
  api_key: 'API key',
  signer_session: 'signer session',
  token: 'token',
  headers: "headers of the operator's proxy",
  other: 'credential of another form',
}

const sources: Readonly<Record<string, string>> = {
  memory: "from the sidecar's memory",
  redis: 'from Redis',
  core: 'from core',
  token: 'from the credential itself',
}

function credentialSentences(credential: CredentialRecord): string[] {
  const { kind, id, issuer, clientId, externalUserId, source, ageMs } = credential
  const name = credentialKinds[kind]
  if (name === undefined)
    return [kind === 'unread' ? 'The request was not read.' : `The credential is ${kind}.`]
  const credentialName = `The credential is ${article(name)} ${name}${id ? `, ${id}` : ''}`
  if (externalUserId === undefined)
    return [`${credentialName}${issuer ? ` of ${issuer}` : ''}. It identified no user.`]
  const origin = sources[source ?? ''] ?? `from ${source}`
  const age = ageMs === undefined || ageMs === 0 ? '' : `, verified ${duration(ageMs)} before`
  return [
    `${credentialName}.`,
    `It identifies the user ${externalUserId} of ${clientId}: ${origin}${age}.`,
  ]
}

const article = (name: string): string =>
  name.startsWith('headers') ? 'the' : /^[aeio]/i.test(name) ? 'an' : 'a'

const unitNames: Readonly<Record<string, string>> = {
  live: 'second',
  lv2v: '720p pixel second',
  fixed: 'call',
}

function sessionSentences(session: SessionRecord): string[] {
  const { id, type, app, sequence, lastUpdate, priorCall } = session
  const kind = type === '' ? 'without a type' : `of type ${type}`
  const facts = [
    `call ${sequence ?? 'without a number'}`,
    ...(lastUpdate === undefined ? [] : [`signed at ${lastUpdate}`]),
    ...priceFacts(session),
    ...(app === '' ? [] : [`application ${app}`]),
  ]
  return [
    `The session is ${id === '' ? 'without an id' : id}, ${kind}: ${facts.join(', ')}.`,
    ...(priorCall ? [priorSentence(priorCall)] : []),
  ]
}

function priceFacts({ type, priceWei, priceUnits }: SessionRecord): string[] {
  if (priceWei === undefined || priceUnits === undefined) return ['without a usable price']
  const unit = unitNames[type] ?? 'unit'
  return [`${priceWei} wei for ${priceUnits === '1' ? `a ${unit}` : `${priceUnits} ${unit}s`}`]
}

function priorSentence({ sequence, at, source }: PriorCallRecord): string {
  if (source === 'none') return 'It is the first call of its session.'
  if (source === 'core')
    return 'Core provided the previous call; the time since that call is charged.'
  if (at === undefined)
    return 'The time of the previous call is unknown, so the longest time is assumed.'
  return `The time since call ${sequence ?? 'unknown'}, which this sidecar recorded as signed at ${at}, is charged.`
}

function moneySentences(money: MoneyRecord): string[] {
  const { boundUsdNanos, accessAgeMs, lease, limit, coreAway } = money
  return [
    ...(boundUsdNanos === undefined
      ? []
      : [`It costs at most ${usd(boundUsdNanos)} USD${rateClause(money)}.`]),
    ...(lease ? [leaseSentence(lease)] : []),
    ...remainingSentences(money),
    ...(accessAgeMs === undefined
      ? []
      : [`The data of core about the user was ${duration(accessAgeMs)} old.`]),
    ...(money.source === 'core' ? ['The call had its own reservation at core.'] : []),
    ...(money.source === 'offline' ? ['Core was unavailable, so the offline budget applied.'] : []),
    ...(coreAway ? ['Core did not answer.'] : []),
    ...(limit ? [`The limit is ${limit}.`] : []),
  ]
}

function rateClause({ usdPerEth, rateAgeMs, rateRaised }: MoneyRecord): string {
  if (usdPerEth === undefined) return ''
  const margin = rateRaised ? ', an old rate with its margin' : ''
  return `, at ${usdPerEth} USD for one ETH${margin}${rateAgeMs === undefined ? '' : `, observed ${duration(rateAgeMs)} before`}`
}

function leaseSentence({ id, amountUsdNanos, leftUsdNanos, ageMs, endsInMs }: LeaseRecord): string {
  const end = endsInMs === 0 ? 'it had ended' : `it ends in ${duration(endsInMs)}`
  return `The lease ${id} had ${usd(leftUsdNanos)} of ${usd(amountUsdNanos)} USD left; core confirmed it ${duration(ageMs)} before, and ${end}.`
}

function remainingSentences({ remainingUsdNanos, remainingAgeMs }: MoneyRecord): string[] {
  if (remainingUsdNanos === undefined || remainingAgeMs === undefined) return []
  return [
    `Core reported ${duration(remainingAgeMs)} before that ${usd(remainingUsdNanos)} USD were neither lent nor pending.`,
  ]
}

/** Formats nano-dollars as dollars, without trailing zeros. */
function usd(nanos: string): string {
  const digits = nanos.padStart(10, '0')
  const fraction = digits.slice(-9).replace(/0+$/, '')
  return `${digits.slice(0, -9)}${fraction && `.${fraction}`}`
}

/** Formats as `0.25 s`, `12.3 s`, `95 s`. */
const duration = (ms: number): string => `${Number((ms / 1000).toPrecision(3))} s`

/** Sentences for the rules of sidecar/decision/refusals.ts. */
const rules: Readonly<Record<string, string>> = {
  allowed:
    'The credential is valid, and the available money covers the highest possible cost of the call.',
  missing_credential: 'A call needs an Authorization header with Bearer and one credential.',
  malformed_credential: 'The Authorization header must be Bearer, followed by one credential.',
  owner_payment_method_required:
    'The user is new, and the app accepts no new users: its owner has used up their allowance in the app and has no payment method that can be charged.',
  end_user_cap_reached: 'The user is new, and the app has reached its cap on active end users.',
  ambiguous_credential: 'Two different Authorization values name two users, so neither is used.',
  unknown_credential: 'No verifier of IDENTITY_AUTH_MODE accepts a credential of this form.',
  invalid_api_key:
    'The key must be well-formed, known and not revoked, and its user must be active.',
  invalid_token:
    'A token must be signed by a trusted issuer for this audience, within its time, and not revoked; a signer session must be known and must not have ended.',
  token_form: 'The token is not a JWT that can be verified.',
  token_issuer: 'The token must be of an issuer that the deployment or an app trusts.',
  token_signature: 'The token must be signed by a key of its issuer.',
  token_expired: 'The token is expired, or it is not valid yet.',
  token_audience: 'The token must be for the audience of the signer.',
  token_client:
    'The token must name, by the claim that the app chose, a client of this app and of no other.',
  token_claim: 'A claim that the token needs is missing or wrong.',
  token_use: 'Of the tokens of this service, only user and signer tokens identify a user.',
  token_revoked: 'The token was revoked, or the login that it came from has ended.',
  void_token: "The token was issued before the user's tokens were voided by a deactivation.",
  insufficient_scope: 'The token needs the scope sign:job.',
  invalid_identity:
    'The credential must name a known app, and a user whose name the signer can record.',
  rate_limited: 'Wrong secrets of proxies are limited; the right one is always accepted.',
  other_identity: 'The signer has bound the session to another user than the credential names.',
  foreign_signer: 'A signer with secrets of its own gets decisions about users of its apps only.',
  user_inactive: 'An inactive user may not spend.',
  too_large: 'The signer passed on more than one mebibyte of headers.',
  invalid_state:
    "The signer's state needs an id, a number and a time, or its ticket could never be matched.",
  insufficient_balance: 'A call is refused when its bound exceeds the available money.',
  no_payment_method:
    'A call beyond the available money needs a payment method that can be charged.',
  debt_ceiling_reached:
    'A call is refused when its bound exceeds the available money and the credit line: the ceiling of debt, less the unpaid debt.',
  owner_debt_ceiling_reached:
    "The account of the app's owner pays network cost and platform fee of each call. A call is refused when what all apps of the owner hold and this call exceed the balance and credit line of that account; ./tollgate quota shows it.",
  owner_payment_method_missing:
    "The account of the app's owner pays network cost and platform fee of each call. It has too little left, and its plan would let it spend on credit with a payment method that can be charged.",
  owner_unpaid:
    "The account of the app's owner pays network cost and platform fee of each call. What all apps of the owner hold and this call exceed its balance and credit line: the ceiling of its debt, less the unpaid debt.",
  untyped_call:
    'The call has no type or price by which it could be bounded. UNTYPED_CALL_USD sets the amount that such a call reserves.',
  rate_unavailable:
    'Without a usable rate, the last rate is used for RATE_GRACE_SECONDS, with a margin; after that, no call has a bound.',
  limit_exceeded: 'A limit of the user or key is reached.',
  billing_unavailable:
    'Core must approve money that no lease covers and receive reports of allowed calls, but core does not respond.',
  authorization_unavailable:
    'The sidecar must verify the user and must hold its own id at core; one of these failed.',
  overloaded: 'The sidecar already had AUTHORIZE_MAX_IN_FLIGHT decisions in progress.',
}
