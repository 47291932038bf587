import type { M2mCaller } from '../../../core/rpc/callers.ts'
import { type Wired, wireCore } from '../core.ts'
import { startHelper } from '../helper.ts'
import type { Bench } from '../row.ts'
import { count } from '../table.ts'

export interface Million {
  readonly url: string
  readonly core: Wired
  readonly caller: M2mCaller
  /** Tickets of the user with many; `few` are those of the other user. */
  readonly many: number
  readonly few: number
}

/** Collects a million tickets of one user and a thousand of another through the real collector. */
export async function collectMillion(bench: Omit<Bench, 'million' | 'history'>): Promise<Million> {
  const many = bench.quick ? 200_000 : 1_000_000
  const url = await (await bench.server()).create()
  const core = wireCore(url)
  bench.defer(core.stop)
  const caller = await core.createApp()
  bench.say(`collecting ${count(many)} tickets of one user`)
  const collector = await startHelper({
    program: 'ingest/collector-run.ts',
    args: [url, caller.clientId, String(many)],
  })
  bench.defer(collector.stop)
  await collector.ask({})
  await collector.stop()
  return { url, core, caller, many, few: many / 1000 }
}
