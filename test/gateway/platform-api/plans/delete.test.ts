import { describe, expect, it } from 'vitest'
import { logInTo } from '../../../support/web/people.ts'
import { console, app, person, setUpApp, ask } from '../support.ts'
import { update, remove, list, newPlan, defaultOf, auditOf, sdxl } from './support.ts'

setUpApp('admin')

describe('deleting a plan', () => {
  it('removes the plan from the list and frees its name', async () => {
    const id = await newPlan({ capabilities: [sdxl] })
    expect((await remove(`?planId=${id}`)).body).toMatchObject({ success: true })
    expect(await list()).toHaveLength(2)
    expect((await remove(`?planId=${id}`)).status).toBe(404)
    expect((await update({ id, name: 'x' })).status).toBe(404)
    expect(await newPlan({ name: 'PRO' })).not.toBe(id)
    expect((await auditOf('plan_')).toSorted()).toEqual(
      ['plan_created', 'plan_created', 'plan_deleted'].map((action) => [action, person.accountId]),
    )
  })

  it('refuses in this order', async () => {
    const network = await defaultOf('isNetworkDefault')
    const starter = await defaultOf('isStarterDefault')
    const other = await console.newApp()
    const owner = await logInTo(console, other, 'owner')
    const foreign = await console.ask('POST', `/api/v1/apps/${other.clientId}/plans`, {
      person: owner,
      json: { name: 'Theirs' },
    })
    expect((await remove('')).body['detail']).toBe('planId is required')
    expect((await remove('')).status).toBe(400)
    expect((await remove('?planId=')).status).toBe(400)
    expect((await remove('?planId=x&plan=y')).status).toBe(400)
    expect((await remove('?planId=x')).status).toBe(404)
    expect((await remove(`?planId=${String(foreign.body['id'])}`)).status).toBe(404)
    expect((await remove(`?planId=${String(network['id'])}`)).status).toBe(409)
    expect((await remove(`?planId=${String(starter['id'])}`)).status).toBe(409)
    expect(await list()).toHaveLength(2)
  })

  it('reports how many users are on it', async () => {
    const id = await newPlan()
    for (const externalUserId of ['ada', 'bob'])
      await ask('POST', '/users', { authorization: app.basic, json: { externalUserId } })
    await console.sql.query(
      `update subscriptions set plan_id = $2 where app_id = (select app_id from clients where client_id = $1)`,
      [app.clientId, id],
    )
    const { status, body } = await remove(`?planId=${id}`)
    expect([status, body['code'], body['activeSubscribers']]).toEqual([409, 'conflict', 2])
  })
})
