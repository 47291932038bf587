import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get, internalTag } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, UserParams } from '../schemas.ts'

const Attos = (description: string) =>
  Type.String({ pattern: '^-?[0-9]+$', description: `${description} In 10^-18 USD.` })

const UserHolds = named(
  Type.Object({
    lentUsdAttos: Attos('Lent to sidecars.'),
    pendingUsdAttos: Attos('Bounds of allowed calls without a ticket.'),
    pendingCount: Type.String({ description: 'Number of those calls.' }),
    leases: Type.Array(
      Type.Object({
        id: Type.String(),
        sidecarId: Type.String(),
        amountUsdAttos: Attos('All money lent under it.'),
        usedUsdAttos: Attos('What the sidecar has spent of it.'),
        endsAt: Instant(
          'Until when the sidecar may spend it, unless it is renewed. The unspent part comes back when its calls are known, so not earlier.',
        ),
        recalled: Type.Boolean({ description: 'Whether core wants it back.' }),
      }),
    ),
    calls: Type.Array(
      Type.Object({
        sessionId: Type.String(),
        sequence: Type.String({ description: 'Number of the call in its session.' }),
        calls: Type.Integer({ description: 'Calls without a ticket that it stands for.' }),
        sidecarId: Type.String(),
        boundUsdAttos: Attos('What they may cost at most.'),
        authorisedAt: Instant('When the first of them was allowed.'),
        state: Type.Unsafe<'unproven' | 'proven' | 'ticketed'>({
          type: 'string',
          enum: ['unproven', 'proven', 'ticketed'],
          description:
            'unproven: it may never have been signed. proven: a later call proves that it was, so its ticket must come. ticketed: its ticket waits for a price.',
        }),
      }),
      { description: 'The oldest 100.' },
    ),
    eventLagSeconds: Type.Integer({
      description:
        "A call without a ticket this far behind its sidecar's stream of events has ended.",
    }),
    holdMaxSeconds: Type.Integer({
      description:
        'A call without a ticket has ended, too, this long after the last call that its sidecar allowed to anybody. LOST_TICKETS decides whether a proven one is charged.',
    }),
  }),
  'UserHolds',
)

/** A user's money that is lent or pending, for members of the app (docs/escrow.md). */
export function userHoldRoutes(app: App): void {
  addSchemas(app, [UserHolds])
  readHolds(app)
}

const readHolds = get({
  url: '/api/v1/internal/apps/:clientId/users/:externalUserId/holds',
  guard: { kind: 'member_read' },
  refuses: ['NOT_FOUND'],
  operationId: 'getUserHolds',
  summary: "What is held of a user's money now",
  description:
    'Returns what sidecars may spend without asking core, and the calls that were allowed and have no ticket yet.',
  tags: [internalTag, 'users'],
  params: UserParams,
  response: { 200: ref(UserHolds) },
  handler: async ({ params, core }) => {
    const { holds, eventLagSeconds, holdMaxSeconds } = await core.holds.getUserHolds(params)
    const { lentUsdAttos = '0', pendingUsdAttos = '0', pendingCount = '0' } = holds ?? {}
    return {
      lentUsdAttos,
      pendingUsdAttos,
      pendingCount,
      eventLagSeconds,
      holdMaxSeconds,
      leases: holds?.leases ?? [],
      calls: (holds?.pending ?? []).map(({ proven, ticketed, ...call }) => ({
        ...call,
        state: ticketed ? 'ticketed' : proven ? 'proven' : 'unproven',
      })),
    }
  },
})
