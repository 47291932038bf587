/** What a books file has of each table of the schema (docs/books.md, "Moving a deployment"). */

export interface HistoryTable {
  /** Columns that stay behind, because they are secret. They are null after an import. */
  readonly without?: readonly string[]
  /** The rows that are exported; all by default. */
  readonly where?: string
  /** Order of the rows; that of the primary key by default. */
  readonly order?: string
  /** Rows of one chunk, for tables with large rows. */
  readonly rowsAtOnce?: number
}

const notSimulated = { where: `processor <> 'simulated'` }

/** Money, history and what both refer to. Each table comes after those that it refers to. */
export const history: Readonly<Record<string, HistoryTable>> = {
  accounts: { without: ['password_hash'] },
  account_identities: {},
  apps: {},
  members: {},
  clients: { where: `kind <> 'registered'` },
  domains: {},
  tenants: {},
  trusted_issuers: {},
  trusted_issuer_matches: {},
  end_users: {},
  platform_app: {},
  test_clock_moves: {},
  plans: {},
  plan_versions: {},
  plan_bundles: {},
  starter_raises: {},
  subscriptions: {},
  subscription_history: {},
  catalog_entries: {},
  seen_capabilities: {},
  manifests: {},
  discovery_profiles: {},
  price_chain: {},
  price_heads: {},
  platform_cuts: {},
  billing_settings: {},
  billing_mode_changes: {},
  rates: {},
  envelopes: {},
  tickets: {},
  ticket_sessions: {},
  usage_hourly: {},
  quarantine: { rowsAtOnce: 4 },
  stream_offsets: {},
  grants: {},
  adjustments: {},
  ledger_entries: {},
  balances: {},
  periods: {},
  credit_quotas: {},
  limits: {},
  limit_sessions: {},
  owner_holds: {},
  sidecars: {},
  sidecar_clocks: {},
  leases: {},
  authorisations: {},
  early_tickets: {},
  authorised_sessions: {},
  prorations: {},
  plan_orders: {},
  invoice_numbers: {},
  // An invoice before its credit notes, which name it.
  invoices: { order: `kind desc, app_id, number` },
  invoice_lines: {},
  // The address of a pay page works without a login. Core fetches it again.
  checkouts: { without: ['url'] },
  payments: {},
  payment_returns: {},
  payment_attempts: {},
  collections: {},
  processor_accounts: notSimulated,
  processor_customers: notSimulated,
  processor_reconciliations: notSimulated,
  processor_movements: {},
  processor_differences: {},
  checkpoints: {},
  book_heads: {},
  receipt_days: {},
  test_days: {},
  receipt_roots: {},
  receipt_chunks: { rowsAtOnce: 50 },
  ticket_archives: {},
  archived_charges: {},
  audit_log: { rowsAtOnce: 100 },
}

const secret = 'a credential, or useless without its secret: issue it again'
const visit = 'a visit in progress: people start again'
const processor = 'live state of a payment processor, which is read again'
const queue = 'work in progress, which belongs to the deployment that does it'
const copy = 'a copy that is read or written again'
const dead = 'not used any more'

/** Tables that no books file has, with the reason. */
export const notExported: Readonly<Record<string, string>> = {
  client_secrets: secret,
  tenant_secrets: secret,
  registration_tokens: secret,
  registered_clients: secret,
  consents: secret,
  api_keys: secret,
  signing_keys: secret,
  stream_ends: copy,
  signers: secret,
  signer_apps: secret,
  signer_secrets: secret,
  webhook_endpoints: secret,
  webhook_secrets: secret,
  token_families: secret,
  refresh_tokens: secret,
  signer_sessions: secret,
  grant_ends: 'ends of credentials that are not exported',
  web_sessions: visit,
  identity_links: visit,
  used_provider_logins: visit,
  password_resets: visit,
  invitations: visit,
  device_codes: visit,
  authorization_codes: visit,
  connect_states: visit,
  processor_events: processor,
  simulated_objects: processor,
  simulated_requests: processor,
  simulated_movements: processor,
  simulated_events: processor,
  webhook_deliveries: queue,
  outbox: queue,
  mails: queue,
  idempotency_keys: queue,
  idempotency_claims: queue,
  plan_syncs: copy,
  backend_marks: copy,
  provider_users: copy,
  catalog_reads: copy,
  checks: copy,
  payment_processor: 'core stores its setting at each start',
  decisions: 'why sidecars decided, for seven days',
  restored_peppers: secret,
  network_costs: dead,
  network_exposures: dead,
  migrations: 'an import applies all migrations',
}
