import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { SeededApp } from '../../support/web/walk/seed.ts'
import { listOwnViews, listViews } from '../../support/web/walk/views.ts'

const root = join(import.meta.dirname, '../../..')
/** An app whose ids are the names that the router gives them. */
const app: SeededApp = {
  clientId: '$clientId',
  externalUserId: '$externalUserId',
  planId: '$planId',
  endpointId: '$endpointId',
  invoiceId: '$invoiceId',
  noteId: '$invoiceId',
  quarantineId: '$quarantineId',
  eventId: 'event',
  use: async () => undefined,
  stop: async () => undefined,
}
/** The parts of the design system have no data, and the first address of Operate leads on. */
const others = ['/design', '/operate', '/operate/']

describe('the list of views', () => {
  it('has every address of the router, and no other one', () => {
    const source = readFileSync(join(root, 'gateway/web/router.tsx'), 'utf8')
    const declared = [...source.matchAll(/getParentRoute: \(\) => (\w+),\s+path: '([^']+)'/g)]
      .map(([, parent, path = '']) => (parent === 'operate' ? `/operate${path}` : path))
      .filter((path) => !others.includes(path))
    const listed = [...listViews(app), ...listOwnViews(app)].map(
      ({ path }) => decodeURIComponent(path.split('?')[0] ?? '') || '/',
    )
    const asDeclared = listed.map((path) => path.replace('/me/$clientId', '/me/$ownAppId'))
    expect(declared.length).toBeGreaterThan(30)
    expect([...new Set(asDeclared)].sort()).toEqual(declared.sort())
  })
})
