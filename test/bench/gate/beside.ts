import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { type Helper, startHelper } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import {
  type Gate,
  answerAbout,
  clientId,
  openGate,
  requestsOf,
  secret,
  serverCore,
} from './parts.ts'
import { alternate, measure, processorFinding } from './rounds.ts'
import { issuer, newTokens } from './tokens.ts'

const name = '@pymthouse/clearinghouse-identity-webhook'
const folder = join(import.meta.dirname, '../../../node_modules', name)
const credentialCount = 1_000

/**
 * Sends the same requests to the sidecar and to the other identity webhook for this protocol. The
 * other one keeps no balance and verifies a token on every call. Both run in the same version of
 * Node, on the same processor core in turn.
 */
export async function compareWithPeer(bench: Bench): Promise<Finding[]> {
  if (!existsSync(folder)) {
    bench.say(
      `authorize-beside: no row, because ${name} is not installed (npm ci with devDependencies)`,
    )
    return []
  }
  const gate = await openGate(bench)
  const keys = gate.newKeys(credentialCount)
  const byKey = Object.fromEntries(
    keys.map((key) => [key, gate.core.keys.get(key)?.externalUserId ?? '']),
  )
  const tokens = await newTokens(gate.core, credentialCount)
  const modes = [
    { mode: 'api_key', atLeast: 2.6, credentials: keys, settings: { keys: byKey } },
    { mode: 'oidc', atLeast: 4.4, credentials: tokens, settings: { jwks: gate.core.script.jwks } },
  ]
  const findings: Finding[] = []
  for (const mode of modes) findings.push(await compare({ bench, gate, ...mode }))
  return findings
}

interface Mode {
  readonly bench: Bench
  readonly gate: Gate
  readonly mode: string
  readonly atLeast: number
  readonly credentials: readonly string[]
  /** Settings of the other webhook in this mode. */
  readonly settings: object
}

async function compare({ bench, gate, mode, atLeast, credentials, settings }: Mode) {
  const [rounds, count] = bench.quick ? [5, 5_000] : [9, 15_000]
  const { load } = gate
  const sidecar = await gate.sidecar({
    IDENTITY_AUTH_MODE: mode,

    IDENTITY_TTL_SECONDS: '3600',
    REVOCATION_BOUND_SECONDS: '3660',
  })
  const other = await startOther(bench, settings)
  for (const server of [other, sidecar]) {
    const answer = await answerAbout(server, credentials[0] ?? '')
    if (!answer.startsWith('{"status":200')) throw new Error(`${mode}: refused with ${answer}`)
  }
  await load.ask(requestsOf(credentials))
  for (const server of [other, sidecar]) await measure({ load, server, count })
  const pair = await alternate(
    rounds,
    () => measure({ load, server: other, count }),
    () => measure({ load, server: sidecar, count }),
  )
  await other.stop()
  await sidecar.stop()
  return processorFinding(pair, { name: `authorize-beside, ${mode}`, atLeast, beside: 'the other' })
}

async function startOther(bench: Bench, settings: object): Promise<Helper> {
  const helper = await startHelper({
    program: 'gate/other-webhook.ts',
    args: [JSON.stringify({ secret, issuer, clientId, ...settings })],
    core: serverCore,
  })
  bench.defer(helper.stop)
  return helper
}
