import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant } from '../schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const MovedClocks = named(
  Type.Object({
    clocks: Type.Array(
      Type.Object({
        clientId: Type.String(),
        name: Type.String(),
        now: Instant('The time on the clock.'),
        aheadMs: Type.String({
          pattern: '^[0-9]+$',
          description: 'Milliseconds by which the clock is ahead of real time.',
        }),
        movedAt: Instant('When it was moved last.'),
        moves: Type.Integer({ description: 'How often it was moved.' }),
      }),
      { description: 'The furthest first; at most 1,000.' },
    ),
  }),
  'MovedClocks',
)

/** The clocks of test apps, over all apps. */
export function movedClockRoutes(app: App): void {
  addSchemas(app, [MovedClocks])
  listTestClocks(app)
}

const listTestClocks = get({
  ...operateRules,
  url: `${operateUrl}/test-clocks`,
  operationId: 'listTestClocks',
  summary: 'The test clocks that were moved',
  description: 'Lists the test apps whose clocks are ahead of real time.',
  response: { 200: ref(MovedClocks) },
  handler: async ({ core }) => core.testClock.listTestClocks({}),
})
