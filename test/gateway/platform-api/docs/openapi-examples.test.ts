import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { examples } from '../../../../gateway/platform-api/docs/openapi.ts'
import { type StoryStep, tellStory } from './examples-story.ts'
import { type Grants, startGrants } from '../oidc/support.ts'
import { audited } from '../../../core/rpc/audited.ts'
import { asRecord, documentChecker } from '../../support.ts'

let grants: Grants
let document: Record<string, unknown>
let story: readonly StoryStep[]
beforeAll(async () => {
  grants = await startGrants({ PAYMENT_PROCESSOR: 'simulated' })
  document = asRecord(await (await fetch(`${grants.real.url}/api/v1/openapi.json`)).json())
  const forms = new Set(
    operations()
      .filter(({ types }) => types.includes('application/x-www-form-urlencoded'))
      .map(({ name }) => name),
  )
  story = await tellStory(grants, { forms, bodies: (operation) => examples[operation]?.body })
})
afterAll(() => grants.stop())

// Every call that changed something has audit entries, with the actions listed in
// test/core/rpc/audited.ts.
it('leaves the audit entries that each RPC declares', async () => {
  const { metrics, sql } = grants.real.core
  const durations = await metrics.getSingleMetric('tollgate_core_rpc_duration_seconds')?.get()
  const called = new Set(
    durations?.values.flatMap(({ labels }) =>
      labels['reason'] === 'OK' ? [String(labels['rpc']).replace('tollgate.', '')] : [],
    ),
  )
  const { rows } = await sql.query<{ action: string }>('select distinct action from audit_log')
  const actions = new Set(rows.map(({ action }) => action))
  const promises = [...called].flatMap((rpc) => {
    const rule = audited[rpc]
    return typeof rule === 'object' && 'as' in rule
      ? rule.as.map((action) => ({ rpc, action }))
      : []
  })
  expect(promises.length).toBeGreaterThan(20)
  expect(promises.filter(({ action }) => !actions.has(action))).toEqual([])
})

// Their answers are documents, and one document contains the examples.
const documents = new Set(['get /api/v1/openapi.json', 'get /api/v1/sidecar/openapi.json'])

/**
 * Returns the document's operations: content types of the body, and success statuses with a body.
 */
function operations() {
  return Object.entries(asRecord(document['paths'])).flatMap(([path, item]) =>
    Object.entries(asRecord(item)).map(([method, value]) => {
      const operation = asRecord(value)
      const content =
        operation['requestBody'] === undefined
          ? {}
          : asRecord(asRecord(operation['requestBody'])['content'])
      const statuses = Object.entries(asRecord(operation['responses']))
        // An event stream has its own example; it has no end to compare with.
        .filter(
          ([status, response]) =>
            status.startsWith('2') &&
            'application/json' in asRecord(asRecord(response)['content'] ?? {}),
        )
        .map(([status]) => status)
      return {
        name: `${method} ${path}`,
        types: Object.keys(content),
        content,
        statuses,
        responses: asRecord(operation['responses']),
      }
    }),
  )
}

const exampleOf = (media: unknown): unknown[] =>
  Object.values(asRecord(media)).map((each) => asRecord(each)['example'])

/** Kinds of text, so that an id does not match a time. */
const kinds: readonly [string, RegExp][] = [
  ['uuid', /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/],
  ['time', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/],
  ['digits', /^\d+$/],
  ['app', /^app_[0-9a-f]{24}$/],
  ['m2m', /^m2m_[0-9a-f]{24}$/],
  ['secret', /svc_[a-z]{2}_/],
  ['jwt', /^[\w-]+\.[\w-]+\.[\w-]+$/],
  ['url', /^https?:\/\//],
  ['email', /@/],
]

function kindOf(value: unknown): string {
  if (typeof value !== 'string') return value === null ? 'null' : typeof value
  return kinds.find(([, form]) => form.test(value))?.[0] ?? 'text'
}

/**
 * Returns where an example differs from the answer in names or kinds. Items of an example's list
 * must be like items of the answer's.
 */
function differences(example: unknown, real: unknown, at: string): string[] {
  if (Array.isArray(example) && Array.isArray(real)) {
    if (example.length === 0 || real.length === 0)
      return example.length === real.length ? [] : [`${at}: one list is empty`]
    return example.flatMap((each: unknown, i) =>
      real.some((other) => differences(each, other, at).length === 0)
        ? []
        : differences(each, real[0], `${at}[${i}]`),
    )
  }
  if (kindOf(example) !== kindOf(real)) return [`${at}: ${kindOf(example)}, but ${kindOf(real)}`]
  if (typeof example !== 'object' || example === null) return []
  const [exampleNames, realNames] = [
    Object.keys(example).toSorted(),
    Object.keys(asRecord(real)).toSorted(),
  ]
  if (exampleNames.join() !== realNames.join())
    return [`${at}: ${exampleNames.join()}, but ${realNames.join()}`]
  return Object.entries(example).flatMap(([name, each]) =>
    differences(each, asRecord(real)[name], `${at}.${name}`),
  )
}

describe('examples of the document', () => {
  it('exist for every body and every success answer, and for nothing else', () => {
    const lacking = operations()
      .filter(({ name }) => !documents.has(name))
      .flatMap(({ name, types, content, statuses, responses }) => [
        ...(types.length > 0 && !exampleOf(content).every(Boolean) ? [`${name}: body`] : []),
        ...statuses
          .filter((status) => !exampleOf(asRecord(responses[status])['content']).every(Boolean))
          .map((status) => `${name}: ${status}`),
      ])
    expect(lacking).toEqual([])
    const names = new Set(operations().map(({ name }) => name))
    // Only if the sidecar's handler is mounted.
    expect(Object.keys(examples).filter((name) => !names.has(name))).toEqual([
      'post /webhooks/remote-signer',
    ])
  })

  it('satisfy their schemas', async () => {
    const check = await documentChecker(document, { strict: true })
    expect(Object.keys(examples).length).toBeGreaterThan(50)
    for (const { name, statuses } of operations().filter((each) => !documents.has(each.name))) {
      const [method = '', template = ''] = name.split(' ')
      for (const status of statuses) {
        const headers = new Headers({ 'content-type': 'application/json' })
        const text = JSON.stringify(examples[name]?.answers[status])
        check({
          method: method.toUpperCase(),
          path: template.replace(/\{\w+\}/g, 'x'),
          answer: { status: Number(status), headers, text, body: {} },
        })
      }
    }
  })

  it("match a real core's answers in names and kinds", () => {
    const seen = story.filter(({ step }) => !documents.has(step.operation))
    expect(seen.length).toBeGreaterThan(60)
    expect(
      seen.flatMap(({ step, status, answer }) =>
        differences(
          examples[step.operation]?.answers[status],
          answer,
          `${step.operation} ${status}`,
        ),
      ),
    ).toEqual([])
    const covered = new Set(seen.map(({ step, status }) => `${step.operation} ${status}`))
    const all = operations()
      .filter(({ name }) => !documents.has(name))
      .flatMap(({ name, statuses }) => statuses.map((status) => `${name} ${status}`))
    expect(all.filter((each) => !covered.has(each))).toEqual([])
  })
})
