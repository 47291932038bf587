import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createEnvReader } from '../../../../core/lib/env.ts'
import { registerSecret } from '../../../support/run/secrecy.ts'
import { logIn } from '../../../support/web/people.ts'
import { type Console, startConsole } from '../../console.ts'

const secret = registerSecret('a secret that must stay in the process')
const login = registerSecret('user:p@ssword')
const key = registerSecret('key-of-the-query')

let console: Console
beforeAll(async () => {
  const reader = createEnvReader(
    {
      TOKEN: secret,
      ADDRESS: `https://${login}@host.example/x?apikey=${key}&of=eth,https://${login}@two.example`,
      ZONE: 'eu',
    },
    { files: { ZONE: '/etc/tollgate.yaml' } },
  )
  reader.optional('ZONE', { meaning: 'Where it runs.' })
  reader.optional('TOKEN', { meaning: 'Opens the door.', secret: true })
  reader.optional('OTHER_TOKEN', { meaning: 'Opens another door.', secret: true })
  reader.optional('ADDRESS', { meaning: 'What it calls.' })
  reader.text('LEVEL', { meaning: 'How much it logs.', fallback: 'info' })
  reader.text('LEVEL', { meaning: 'How much it logs.', fallback: 'info' })
  reader.live(() => reader.text('LIMIT', { meaning: 'How many.', fallback: '5' }))
  const settings = { process: 'gateway', list: () => reader.settings }
  console = await startConsole({ settings })
})
afterAll(() => console?.stop())

describe('the configuration, for platform admins', () => {
  it('has each setting with value, default and source, and no secret', async () => {
    const person = await logIn(console, { isPlatformAdmin: true })
    const answer = await console.send('GET', '/api/v1/internal/operate/configuration', { person })
    const text = await answer.text()
    expect(answer.status).toBe(200)
    expect(text).not.toContain(secret)
    for (const hidden of [login, 'ssword', key]) expect(text).not.toContain(hidden)
    const unset = { source: 'unset', secret: false, reloads: false }
    expect(JSON.parse(text)).toEqual({
      processes: [
        { process: 'core', settings: [] },
        {
          process: 'gateway',
          settings: [
            {
              ...unset,
              name: 'ADDRESS',
              meaning: 'What it calls.',
              value: 'https://…@host.example/x?apikey=…&of=…,https://…@two.example',
              source: 'environment',
            },
            {
              ...unset,
              name: 'LEVEL',
              meaning: 'How much it logs.',
              value: 'info',
              defaultValue: 'info',
              source: 'default',
            },
            {
              name: 'LIMIT',
              meaning: 'How many.',
              value: '5',
              defaultValue: '5',
              source: 'default',
              secret: false,
              reloads: true,
            },
            { ...unset, name: 'OTHER_TOKEN', meaning: 'Opens another door.', secret: true },
            {
              ...unset,
              name: 'TOKEN',
              meaning: 'Opens the door.',
              source: 'environment',
              secret: true,
            },
            {
              ...unset,
              name: 'ZONE',
              meaning: 'Where it runs.',
              value: 'eu',
              source: '/etc/tollgate.yaml',
            },
          ],
        },
      ],
    })
  })
})
