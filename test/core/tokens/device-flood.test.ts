import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { unary } from '../../../core/lib/grpc.ts'
import { deleteInBatches } from '../../../core/shared/upkeep.ts'
import { DeviceServiceClient } from '../../../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { type TestCore, atOnce, outcome, second, serviceToken, startTestCore } from '../support.ts'

let core: TestCore
let client: DeviceServiceClient
beforeAll(async () => {
  core = await startTestCore({ DEVICE_CODES_PER_CLIENT: '40', DEVICE_CODES_PER_ADDRESS: '15' })
  client = new DeviceServiceClient(core.core.target, credentials.createInsecure())
})
afterAll(async () => {
  client.close()
  await core.stop()
})

const start = (clientId: string, address: string | undefined) =>
  unary(client.startDevice.bind(client))(
    { clientId, scope: undefined, address },
    { deadlineMs: 10_000, headers: { [serviceTokenHeader]: serviceToken } },
  )
const rows = async (): Promise<number> =>
  (await core.sql.query('select count(*)::int as n from device_codes')).rows[0].n

describe('a flood of device requests', () => {
  it('is limited per address and per client, also under concurrent calls', async () => {
    const [one, two] = [await core.newApp(), await core.newApp()]
    const fromOne = await atOnce(60, () => outcome(start(one.clientId, 'here')))
    expect(fromOne.filter((reason) => reason === 'OK')).toHaveLength(15)
    expect(new Set(fromOne)).toEqual(new Set(['OK', 'RATE_LIMITED']))
    // The limit of an address applies across all clients.
    expect(await outcome(start(two.clientId, 'here'))).toBe('RATE_LIMITED')
    const fromMany = await atOnce(60, (index) => outcome(start(one.clientId, `there-${index}`)))
    expect(fromMany.filter((reason) => reason === 'OK')).toHaveLength(25)
    expect(await rows()).toBe(40)
    // Another client at another address is not affected.
    expect(await outcome(start(two.clientId, 'elsewhere'))).toBe('OK')
    for (let round = 0; round < 3; round++) {
      core.clock.advance(1_201 * second)
      await atOnce(60, (index) => outcome(start(one.clientId, `there-${index}`)))
      expect(await rows()).toBeLessThanOrEqual(41)
    }
  })

  it('does not count decided codes', async () => {
    const app = await core.newApp()
    await atOnce(15, () => start(app.clientId, 'full'))
    await core.sql.query("update device_codes set status = 'denied' where client_id = $1", [
      app.clientId,
    ])
    expect(await outcome(start(app.clientId, 'full'))).toBe('OK')
  })
})

describe('deleteInBatches', () => {
  it.each([
    [0, 1],
    [999, 1],
    [2_500, 3],
    [5_000_000, 100],
  ])('deletes %i rows in %i batches', async (stored, expected) => {
    let [left, batches] = [stored, 0]
    await deleteInBatches(async (limit) => {
      const deleted = Math.min(left, limit)
      left -= deleted
      batches++
      return deleted
    })
    expect(batches).toBe(expected)
  })
})
