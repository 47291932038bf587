import { execFileSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createCapacity, createSpoolWriter } from '../../../sidecar/spool/writer.ts'
import { startSpoolingSidecar } from './process.ts'
import { newFolder, until } from './support.ts'

// $0 is the folder. A private file system ends with the process. Without the right to mount one,
// use a limit on the file size, which fails in the same place with another code.
const mounted = 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"'
const limited = 'ulimit -f 400; exec "$@"'

function mayMount(): boolean {
  try {
    execFileSync('unshare', ['--mount', '--map-root-user', 'sh', '-c', mounted, '/mnt', 'true'], {
      stdio: 'ignore',
    })
    return true
  } catch {
    return false
  }
}

const disk = mayMount()
  ? {
      code: 'ENOSPC',
      stays: true,
      wrap: (directory: string) => [
        'unshare',
        '--mount',
        '--map-root-user',
        'sh',
        '-c',
        mounted,
        directory,
      ],
    }
  : { code: 'EFBIG', stays: false, wrap: (directory: string) => ['sh', '-c', limited, directory] }

const event = (n: number): string => JSON.stringify({ id: `event-${n}`, fill: 'x'.repeat(30_000) })

describe('a sidecar with a full disk', () => {
  it(`refuses events with ${disk.code}, and accepts them again when there is space`, async () => {
    const directory = await newFolder()
    const sidecar = await startSpoolingSidecar(
      { SPOOL_DIR: directory, SPOOL_MAX_BYTES: String(64 * 1024 * 1024) },
      disk.wrap(directory),
    )
    const { core, push, url, adminUrl } = sidecar
    core.script.failing = true
    const acknowledged: string[] = []
    let refusal: Awaited<ReturnType<typeof push>> = null
    for (let n = 0; n < 200 && refusal === null; n++) {
      const answer = await push(event(n))
      if (answer?.status === 202) acknowledged.push(event(n))
      else refusal = answer
    }
    expect(refusal).toMatchObject({ status: 503, retryAfter: '5' })
    expect(JSON.parse(refusal?.text ?? '{}')).toMatchObject({
      code: 'spool_unavailable',
      title: 'Spool unavailable',
      detail: expect.stringContaining(`the disk of the spool is full (${disk.code})`),
    })
    expect(acknowledged.length).toBeGreaterThan(3)
    // If each file is limited separately, the next one has space again.
    const ready = await fetch(`${url}/readyz`)
    expect(await ready.json()).toMatchObject({
      parts: { spool: disk.stays ? 'degraded' : 'ok' },
    })
    expect(await (await fetch(`${adminUrl}/metrics`)).text()).toMatch(
      new RegExp(`^tollgate_sidecar_spool_full\\{[^}]*\\} ${Number(disk.stays)}$`, 'm'),
    )
    core.script.failing = false
    await until(() => core.script.ingested.length >= acknowledged.length)
    await expect
      .poll(async () => (await fetch(`${url}/readyz`)).json(), { timeout: 10_000 })
      .toMatchObject({ parts: { spool: 'ok' } })
    expect(await push(event(1_000))).toMatchObject({ status: 202 })
    await until(() => core.script.ingested.length >= acknowledged.length + 1)
    const envelopes = core.script.ingested.map((bytes) => Buffer.from(bytes).toString())
    expect(envelopes).toEqual([...acknowledged, event(1_000)])
  }, 120_000)
})

describe('a failed write', () => {
  it('rejects only the pushes that waited for it', async () => {
    let fault: NodeJS.ErrnoException | null = null
    let written = 0
    const capacity = createCapacity({
      maxBytes: 1e6,
      usedBytes: () => 0,
      log: silentLog(),
      probe: async () => {
        if (fault) throw fault
      },
    })
    const writer = createSpoolWriter({
      capacity,
      now: () => new Date(),
      onWritten: () => capacity.onWritten(),
      nextSequence: () => 1,
      write: async (_bytes, events) => {
        if (fault) throw fault
        written += events
      },
    })
    const append = () => writer.append([Buffer.from('{}')])
    await append()
    fault = Object.assign(new Error('i/o error'), { code: 'EIO' })
    const answers = await Promise.allSettled([append(), append(), append()])
    expect(answers).toMatchObject(
      answers.map(() => ({
        status: 'rejected',
        reason: {
          reason: 'SPOOL_UNAVAILABLE',
          message: 'the spool cannot be written (EIO); send the events again later',
        },
      })),
    )
    expect(capacity.isFull()).toBe(true)
    fault = null
    // The capacity must recover without further pushes.
    await until(() => !capacity.isFull())
    await Promise.all([append(), append()])
    expect(written).toBe(3)
    capacity.stop()
  })
})
