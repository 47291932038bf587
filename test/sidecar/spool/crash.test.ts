import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { createRandom } from '../../support/random.ts'
import { startSpoolingSidecar } from './process.ts'
import { newFolder, until } from './support.ts'
import { testSeed } from '../../support/run/sizes.ts'

process.stdout.write(`spool-crash: TEST_SEED=${testSeed}\n`)

const crashes = 5
const senders = 6

describe(`a sidecar that is killed under load, TEST_SEED=${testSeed}`, () => {
  it('loses no acknowledged event: core receives each unchanged, once by its id', async () => {
    const random = createRandom(testSeed)
    const sidecar = await startSpoolingSidecar({ SPOOL_DIR: await newFolder() })
    const { core, push } = sidecar
    const sent = new Map<string, string>()
    const acknowledged = new Set<string>()
    const load = { isOver: false }

    async function send(): Promise<void> {
      while (!load.isOver) {
        const events = Array.from({ length: 1 + random.below(20) }, () => {
          const id = random.uuid()
          const text = JSON.stringify({
            id,
            fill: random.hex(8).repeat(random.chance(0.02) ? 5_000 : random.below(120)),
          })
          sent.set(id, text)
          return { id, text }
        })
        const answer = await push(events.map(({ text }) => text).join('\n'))
        for (const { id } of answer?.status === 202 ? events : []) acknowledged.add(id)
        await sleep(answer ? 5 : 20)
      }
    }

    // Let core fail at random, so that some events are always spooled and some in flight.
    async function disturb(): Promise<void> {
      while (!load.isOver) {
        core.script.failing = random.chance(0.5)
        core.script.delayMs = random.below(30)
        await sleep(random.below(150))
      }
    }

    const running = [disturb(), ...Array.from({ length: senders }, send)]
    for (let crash = 0; crash < crashes; crash++) {
      await sleep(50 + random.below(400))
      await sidecar.process.kill()
      await sidecar.process.start()
    }
    await sleep(200)
    load.isOver = true
    await Promise.all(running)
    Object.assign(core.script, { failing: false, delayMs: 0 })

    const envelopes = (): Map<string, string> =>
      new Map(
        core.script.ingested.map((bytes) => {
          const text = Buffer.from(bytes).toString()
          const { id }: { id: string } = JSON.parse(text)
          return [id, text]
        }),
      )
    const missing = (): string[] => {
      const known = envelopes()
      return [...acknowledged].filter((id) => !known.has(id))
    }
    await expect.poll(missing, { timeout: 30_000, interval: 300 }).toEqual([])
    expect(acknowledged.size).toBeGreaterThan(100)
    expect([...envelopes()].filter(([id, text]) => sent.get(id) !== text)).toEqual([])
    expect(sidecar.process.crashes()).toBe(crashes)
  }, 240_000)
})

describe('a second sidecar on the same folder', () => {
  it('exits with one line that names the first, and starts after a kill', async () => {
    const directory = await newFolder()
    const first = await startSpoolingSidecar({ SPOOL_DIR: directory })
    await expect(startSpoolingSidecar({ SPOOL_DIR: directory })).rejects.toThrow(
      new RegExp(
        `tollgate: ${directory} is in use by process \\d+: stop it, or set another SPOOL_DIR`,
      ),
    )
    expect(await first.push('{"id":"1"}')).toMatchObject({ status: 202 })
    await until(() => first.core.script.ingested.length === 1)
    await first.process.kill()
    const next = await startSpoolingSidecar({ SPOOL_DIR: directory })
    expect(await next.push('{"id":"2"}')).toMatchObject({ status: 202 })
  }, 120_000)

  it('starts at once after a kill, even if another process has reused the pid', async () => {
    const directory = await newFolder()
    const first = await startSpoolingSidecar({ SPOOL_DIR: directory })
    first.core.script.failing = true
    expect(await first.push('{"id":"1"}')).toMatchObject({ status: 202 })
    await first.process.kill()
    // Simulate that this test's process has got the pid of the first.
    const lock = join(directory, 'tollgate.pid')
    const [pid, startedAt] = (await readFile(lock, 'utf8')).trim().split(' ')
    expect([pid, startedAt]).toEqual([
      expect.stringMatching(/^[0-9]+$/),
      expect.stringMatching(/^[0-9]+$/),
    ])
    await writeFile(lock, `${process.pid} ${startedAt}\n`)
    const next = await startSpoolingSidecar({ SPOOL_DIR: directory })
    await until(() => next.core.script.ingested.length === 1)
    expect((await readFile(lock, 'utf8')).split(' ')[0]).not.toBe(String(process.pid))
    await expect(startSpoolingSidecar({ SPOOL_DIR: directory })).rejects.toThrow('is in use by')
  }, 120_000)
})
