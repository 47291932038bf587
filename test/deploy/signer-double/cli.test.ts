import { spawn } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { parse } from '../../../deploy/cli/options.ts'
import { toSettings } from '../../../deploy/signer-double/cli.ts'
import { signerDoubleOptions } from '../../../deploy/signer-double/cli-options.ts'
import { answer, startWebhook } from './support.ts'

const CLI = join(import.meta.dirname, '../../../deploy/tollgate.mjs')

/** Runs the program; sends a SIGTERM once `until` returns true for its output. */
async function run(
  args: readonly string[],
  until: (out: string) => boolean = () => false,
  env: Readonly<Record<string, string>> = {},
) {
  const child = spawn(process.execPath, [CLI, 'signer-double', ...args], {
    env: { ...process.env, ...env },
  })
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  let stopped = false
  let out = ''
  let err = ''
  child.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString()
    if (!stopped && until(out)) stopped = child.kill('SIGTERM')
  })
  child.stderr.on('data', (chunk: Buffer) => {
    err += chunk.toString()
  })
  const code = await new Promise((resolve) => child.once('close', resolve))
  return { code, out, err }
}

const parseFlags = async (argv: readonly string[]) =>
  toSettings(await parse('signer-double', argv, { options: signerDoubleOptions }))

describe('the command line', () => {
  it('plays sessions against itself and exits 0 on SIGTERM', async () => {
    const webhook = await startWebhook(answer('{"status":200,"auth_id":"acme:alice"}'))
    const folder = await mkdtemp(join(tmpdir(), 'signer-double-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const file = join(folder, 'events.ndjson')
    const { code, out, err } = await run(
      [
        '--port',
        '0',
        '--webhook-url',
        webhook.url,
        '--webhook-headers',
        'Authorization:Bearer whsec_test',
        '--drive',
        '2',
        '--interval',
        '0.05',
        '--authorization',
        'Bearer sk_live_alice',
        '--file',
        file,
      ],
      (text) => text.split(': 200 paid').length > 5,
    )
    expect({ code, err }).toEqual({ code: 0, err: '' })
    expect(out).toMatch(/\d+ payments signed for \d+ wei, \d+ webhook calls,/)
    expect(out).toMatch(/ (\d+) of \1 events delivered/)
    expect(webhook.calls[0]?.rawHeaders).toContain('Bearer whsec_test')
    expect(webhook.calls[0]?.body).toContain('"Authorization":["Bearer sk_live_alice"]')
    expect(await readFile(file, 'utf8')).toContain('"auth_id":"acme:alice"')
  })

  it('reads secrets from its environment', async () => {
    const webhook = await startWebhook(answer('{"status":200,"auth_id":"acme:alice"}'))
    const flags = ['--port', '0', '--webhook-url', webhook.url, '--drive', '1', '--calls', '1']
    const { code } = await run(flags, undefined, {
      SIGNER_WEBHOOK_HEADERS: 'Authorization:Bearer whsec_test',
      SIGNER_AUTHORIZATION: 'Bearer sk_live_alice',
    })
    expect(code).toBe(0)
    expect(webhook.calls[0]?.rawHeaders).toContain('Bearer whsec_test')
    expect(webhook.calls[0]?.body).toContain('"Authorization":["Bearer sk_live_alice"]')
  })

  it('ends by itself after the requested calls', async () => {
    const webhook = await startWebhook(answer('{"status":200,"auth_id":"acme:alice"}'))
    const flags = ['--port', '0', '--webhook-url', webhook.url, '--drive', '2', '--calls', '3']
    const { code, out } = await run([...flags, '--interval', '0.01'])
    expect(code).toBe(0)
    expect(out.match(/: 200 paid/g)).toHaveLength(6)
    expect(out).toContain('6 payments signed')
  })

  it('shows its flags', async () => {
    const { code, out } = await run(['--help'])
    expect(code).toBe(0)
    for (const flag of ['--webhook-url', '--kafka', '--direct-url', '--drive', '--utc-offset']) {
      expect(out).toContain(flag)
    }
  })

  it('reports errors in one line', async () => {
    const { code, err } = await run(['--port', 'x'])
    expect({ code, err }).toEqual({
      code: 2,
      err: 'tollgate: --port must be a whole number from 0 to 65535; see ./tollgate signer-double --help\n',
    })
  })

  it.each([
    [['--mode', 'x'], '--mode must be one of'],
    [['--webhook-url', 'ftp://x'], '--webhook-url must be an http or https URL'],
    [['--direct-url', 'http://x'], '--direct-url needs --direct-secret'],
    [['--kafka', 'localhost'], '--kafka must be a list of host:port'],
    [['--drop', '2'], '--drop must be from 0 to 1'],
    [['--drive', '0.5'], '--drive must be a whole number from 1'],
    [['--drive', '1', '--calls', '0'], '--calls must be a whole number from 1'],
    [['--calls', '3'], '--calls needs --drive'],
    [['--ev', '0'], '--ev must be a positive whole number'],
    [['--utc-offset', '2h'], '--utc-offset must look like'],
    [['--type', 'batch'], '--type must be one of'],
    [['--mode', 'go-v0.8.11', '--type', 'live'], '--type must be one of'],
    [['--unknown'], 'Unknown option'],
    [['stray'], '"stray" is not expected here'],
  ])('refuses %j', async (args, message) => {
    await expect(parseFlags(args)).rejects.toThrow(message)
  })

  it('reads offsets and headers like the signer', async () => {
    const options = await parseFlags([
      '--utc-offset=-07:30',
      '--webhook-url',
      'http://h/',
      '--webhook-headers',
      'A: b:c ,d',
    ])
    expect(options).toMatchObject({
      double: { utcOffsetMinutes: -450, webhook: { headers: [['A', 'b:c']] } },
    })
  })
})
