import type { CountSealedResponse } from '../../../proto/gen/ts-proto/tollgate/shared/v1/sealing.ts'
import { type CoreClient, retry } from '../client.ts'
import { action, createCommand } from '../command.ts'
import { toggle } from '../options.ts'
import { table } from '../output.ts'

const rotate = action({
  text:
    'Signs with the next key from now on and publishes a new next key. The previous key stays published until ' +
    'its last token has expired. The command is refused for six minutes after the next key was made, because ' +
    'verifiers may not have loaded it. --force rotates in spite of that; use it for a leaked key: tokens then ' +
    'fail at verifiers that do not look up unknown keys.',
  options: { force: toggle() },
  change: (core, request) => core.tokens.rotateSigningKeys(request),
  lines: ({ activeKid, nextKid }) => [`active ${activeKid}`, `next   ${nextKid}`],
})

const list = action({
  text: 'Lists every published key, whether it signs now, and how long a retired key stays published.',
  read: (core) => core.tokens.listSigningKeys({}),
  lines: (answer) =>
    table(answer.keys, [
      'status',
      'kid',
      'alg',
      ['made', 'createdAt'],
      ['published until', 'retireAt'],
    ]),
})

const rewrap = action({
  text:
    'Encrypts everything that the keys in KEY_ENCRYPTION_KEYS_OLD encrypted again, with KEY_ENCRYPTION_KEY, ' +
    'while the service runs, and reports when the old keys are no longer needed. It may be stopped and ' +
    'repeated. With --check it only counts, and exits with 1 while a value is not encrypted with the current ' +
    'key.',
  options: { check: toggle() },
  change: async (core, { check }) => {
    const rewrapped = check ? 0 : await rewrapAll(core)
    const counted = await core.sealing.countSealed({})
    const isDone = counted.sealed.every(({ keyId }) => keyId === counted.currentKeyId)
    return { rewrapped, ...counted, done: isDone }
  },
  lines: ({ rewrapped, done, ...counted }) => [
    ...tableOf(counted),
    `${rewrapped} values encrypted again`,
    done
      ? 'Everything is encrypted with KEY_ENCRYPTION_KEY: KEY_ENCRYPTION_KEYS_OLD is no longer needed.'
      : 'Not everything is encrypted with KEY_ENCRYPTION_KEY: keep KEY_ENCRYPTION_KEYS_OLD, check that it has every earlier key, and run "tollgate keys rewrap" again.',
  ],
  isFailure: ({ done }) => !done,
})

async function rewrapAll(core: CoreClient): Promise<number> {
  let rewrapped = 0
  let cursor = ''
  do {
    const from = cursor
    const answer = await retry(() => core.sealing.rewrap({ cursor: from }))
    rewrapped += answer.rewrapped
    cursor = answer.cursor
  } while (cursor !== '')
  return rewrapped
}

const tableOf = ({ sealed, currentKeyId }: CountSealedResponse): string[] =>
  table(sealed, [
    'table',
    ['values', 'count'],
    [
      'key',
      ({ keyId }) =>
        `${keyId === '' ? 'a key without an id, or an unknown one' : keyId}${keyId === currentKeyId ? ' (current)' : ''}`,
    ],
  ])

export const keys = createCommand('keys', {
  summary: 'rotates the keys that sign tokens, and the key that encrypts secrets at rest',
  examples: ['./tollgate keys list', './tollgate keys rewrap --check'],
  actions: { rotate, list, rewrap },
})
