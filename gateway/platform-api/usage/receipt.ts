import { Type } from 'typebox'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Jwks } from '../oidc/schemas.ts'
import { AppParams, nullable, required } from '../schemas.ts'

const Day = (description: string) => Type.String({ format: 'date', description })
const Hash = (description: string) => Type.String({ pattern: '^[0-9a-f]{64}$', description })

const Keys = Type.Object(Jwks.properties, {
  description:
    'The public keys that signed it. Keep them, because old keys are published only for a while.',
})

const Proof = Type.Unsafe<ProofAnswer | null>({
  ...Type.Object({
    day: Day('The day whose tree the ticket is in, UTC.'),
    leafIndex: Type.Integer({ description: 'Its place, from 0.' }),
    treeSize: Type.Integer({ description: 'The tickets of the tree.' }),
    inclusionPath: Type.Array(Hash('SHA-256.'), {
      description: 'The inclusion path of RFC 9162, from the leaf upwards.',
    }),
  }),
  nullable: true,
  description:
    'Null for tickets that are older than the first root, and, until the root of the day is made, for a charge whose tickets were signed days apart.',
})

interface ProofAnswer {
  readonly day: string
  readonly leafIndex: number
  readonly treeSize: number
  readonly inclusionPath: string[]
}

const ReceiptAnswer = named(
  Type.Object({
    receipt: Type.String({
      description: 'The signed statement, a JWS of type tollgate-receipt+jwt.',
    }),
    proof: Proof,
    root: nullable({
      description:
        'The signed root of the day: a JWS of type tollgate-receipt-root+jwt. While provisional, a root over the tickets of the charge, of type tollgate-receipt-provisional-root+jwt. Null as proof is.',
    }),
    provisional: Type.Boolean({
      description:
        'True until the root of the day is made. Get the receipt again after that, for its place in the day.',
    }),
    jwks: Keys,
    jwksUri: Type.String({ description: "Address of the issuer's public keys." }),
  }),
  'Receipt',
)

const RootsAnswer = named(
  Type.Object({
    clientId: Type.String(),
    roots: Type.Array(
      Type.Object({
        day: Day('UTC.'),
        treeSize: Type.Integer({ description: 'The tickets that were booked on it.' }),
        rootHash: Hash('SHA-256.'),
        statement: Type.String({
          description:
            'The signed root: a JWS of type tollgate-receipt-root+jwt, which names the hash of the root before.',
        }),
      }),
      { description: 'The oldest first. A day without tickets has none.' },
    ),
    jwks: Keys,
    nextFrom: Type.Optional(Day('`from` of the next page; absent on the last.')),
  }),
  'ReceiptRoots',
)

const day = (description: string) =>
  Type.Optional(Type.String({ pattern: '^\\d{4}-\\d{2}-\\d{2}$', description }))

const RootsQuery = Type.Object(
  {
    from: day('The first day, YYYY-MM-DD'),
    to: day('The last day, YYYY-MM-DD'),
    limit: Type.Optional(
      Type.String({
        pattern: '^([1-9][0-9]?|[12][0-9]{2}|3[0-5][0-9]|36[0-6])$',
        description: 'a whole number from 1 to 366',
      }),
    ),
  },
  { additionalProperties: false },
)

const ReceiptParams = Type.Object({
  ...AppParams.properties,
  eventId: required('The eventId of the usage history.'),
})

/** Signed receipts of tickets, and signed daily roots over all tickets. */
export function receiptRoutes(app: App): void {
  addSchemas(app, [ReceiptAnswer, RootsAnswer])
  get({
    url: '/api/v1/builder/apps/:clientId/usage/requests/:eventId/receipt',
    guard: { kind: 'm2m_or_member' },
    limit: 'failures',
    metered: true,
    refuses: ['CONFLICT'],
    operationId: 'getReceipt',
    summary: 'Signed receipt of a ticket',
    description:
      "Returns the ticket's cost and its calculation, signed with the issuer’s key, and the proof that the ticket is part of its charge or, after the day has its root, of the day. Returns 409 while the ticket waits for a rate. `./tollgate receipt verify` checks it offline.",
    tags: ['usage'],
    params: ReceiptParams,
    response: { 200: ref(ReceiptAnswer) },
    handler: async ({ params, core }) => {
      const { receipt } = await core.receipts.getReceipt(params)
      return withKeys(requireField(receipt, 'receipt'))
    },
  })(app)
  readRoots(app)
}

const readRoots = get({
  url: '/api/v1/builder/apps/:clientId/usage/roots',
  guard: { kind: 'm2m_or_member' },
  limit: 'failures',
  metered: true,
  operationId: 'listReceiptRoots',
  summary: 'Daily roots over the app’s tickets',
  description:
    'Lists a signed root for each day on which tickets were booked, the oldest first; each names the previous one. Copies of the roots reveal any later change.',
  tags: ['usage'],
  params: AppParams,
  querystring: RootsQuery,
  response: { 200: ref(RootsAnswer) },
  handler: async ({ params, query: { limit, ...days }, core }) => {
    const request = { ...params, ...days, limit: Number(limit ?? 0) }
    const { roots } = await core.receipts.listRoots(request)
    return { ...params, ...withKeys(requireField(roots, 'roots')) }
  },
})

const withKeys = <Answer extends object>(answer: Answer) => ({ ...answer, jwks: answer })
