import { expect } from 'vitest'
import type { RequestOptions } from '../../console.ts'
import { asRecord } from '../../support.ts'
import { console, app, person, ask } from '../support.ts'

export const create = (json: object, more: RequestOptions = {}) =>
  ask('POST', '/plans', { person, json, ...more })
export const update = (json: object) => ask('PUT', '/plans', { person, json })
export const remove = (query: string) => ask('DELETE', `/plans${query}`)
export const list = async (request: RequestOptions = { authorization: app.basic }) => {
  const { text } = await ask('GET', '/plans', request)
  const plans: unknown = JSON.parse(text)
  if (!Array.isArray(plans)) throw new Error(`no array: ${text}`)
  return plans.map(asRecord)
}
export const planOf = async (id: unknown) => {
  const plan = (await list()).find((one) => one['id'] === id)
  if (!plan) throw new Error(`no plan ${String(id)}`)
  return plan
}
export const newPlan = async (json: object = {}): Promise<string> => {
  const { status, body } = await create({ name: 'Pro', ...json })
  expect(body).toEqual({ id: expect.any(String) })
  expect(status).toBe(201)
  return String(body['id'])
}
export const defaultOf = async (flag: 'isStarterDefault' | 'isNetworkDefault') => {
  const plan = (await list()).find((one) => one[flag] === true)
  if (!plan) throw new Error(`no plan with ${flag}`)
  return plan
}
export const auditOf = async (prefix: string) => {
  const { rows } = await console.sql.query(
    `select action, actor from audit_log l join clients c using (app_id)
    where c.client_id = $1 and action like $2 order by l.created_at, l.id`,
    [app.clientId, `${prefix}%`],
  )
  return rows.map(({ action, actor }) => [action, actor])
}

export const sdxl = { pipeline: 'text-to-image', modelId: 'sdxl' }
export const subscription = { type: 'subscription', includedUnits: '100', overageRateWei: '5' }
