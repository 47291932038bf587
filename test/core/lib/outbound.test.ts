import { type RequestListener, createServer } from 'node:http'
import { type AddressInfo, type Socket, createServer as createTcpServer } from 'node:net'
import { once } from 'node:events'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createEnvReader } from '../../../core/lib/env.ts'
import { isListed, isPublicAddress, parseAllowance } from '../../../core/lib/outbound/addresses.ts'
import { createOutbound } from '../../../core/lib/outbound/outbound.ts'
import { readPlatformConfig } from '../../../core/shared/config.ts'

const allowanceOf = (...entries: string[]) => {
  const allow = parseAllowance(entries)
  if (!allow) throw new Error('the entries are not valid')
  return allow
}

async function serve(listener: RequestListener): Promise<number> {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const address = server.address() as AddressInfo
  return address.port
}

async function listen(onSocket: (socket: Socket) => void): Promise<number> {
  const server = createTcpServer(onSocket).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const address = server.address() as AddressInfo
  return address.port
}

const messageOf = async (work: Promise<string>): Promise<string> =>
  work.then(
    () => 'OK',
    (error: unknown) => (error instanceof Error ? error.message : 'no error'),
  )

describe('isPublicAddress', () => {
  it.each([
    '0.0.0.0',
    '10.1.2.3',
    '100.64.0.1',
    '127.0.0.1',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '198.18.0.1',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::ffff:127.0.0.1',
    '::ffff:8.8.8.8',
    '64:ff9b::a00:1',
    'fc00::1',
    'fd00:ec2::254',
    'fe80::1',
    'ff02::1',
    '2001:db8::1',
    '2002:7f00:1::',
    'not an address',
  ])('rejects %s', (address) => {
    expect(isPublicAddress(address)).toBe(false)
  })

  it.each(['8.8.8.8', '172.32.0.1', '100.128.0.1', '2606:4700::1111'])('accepts %s', (address) => {
    expect(isPublicAddress(address)).toBe(true)
  })
})

describe('OUTBOUND_ALLOW', () => {
  it.each([
    ['127.0.0.1', true, true],
    ['127.0.0.2', true, true],
    ['::1', true, true],
    ['localhost', true, true],
    ['0.0.0.0', true, false],
    ['::', true, false],
    ['10.0.0.5', true, false],
    ['svc.example', true, false],
    ['127.0.0.1', false, false],
  ])('includes the loopback with HOST=%s and isEmbedded=%s: %s', (HOST, isEmbedded, isHeld) => {
    const env = createEnvReader({ HOST }, { isEmbedded })
    const { outboundAllow } = readPlatformConfig(env)
    for (const address of ['127.0.0.1', '::1'])
      expect(isListed(outboundAllow, { host: address, address })).toBe(isHeld)
  })

  it.each([
    '10.0.0.0/33',
    '10.0.0.0/',
    '/8',
    'a b',
    'https://idp.example',
    'host/8',
    '1.2.3.4/8/8',
    '::1/129',
  ])('rejects the entry %s', (entry) => {
    expect(parseAllowance([entry])).toBeNull()
  })
})

describe('createOutbound', () => {
  const outbound = (entries: string[], resolve?: (host: string) => Promise<readonly string[]>) =>
    createOutbound({
      allow: allowanceOf(...entries),
      ...(resolve && { resolve }),
      timeoutMs: 2_000,
    })

  it.each([
    ['http://127.0.0.1:1/', 'is not a public address'],
    ['http://127.1:1/', 'is not a public address'],
    ['http://2130706433/', 'is not a public address'],
    ['https://[::1]/', 'is not a public address'],
    ['https://[::ffff:169.254.169.254]/', 'is not a public address'],
    ['http://169.254.169.254/latest/meta-data', 'is not a public address'],
    ['https://localhost/', 'is not a public address'],
    ['ftp://idp.example/', 'must be an https URL'],
    ['https://user:password@idp.example/', 'must hold no credentials'],
    ['nonsense', 'is not a URL'],
  ])('does not reach %s', async (url, why) => {
    expect(await messageOf(outbound([]).fetchText(url))).toContain(why)
  })

  it('allows http only for the loopback, and only if it is listed', async () => {
    const port = await serve((_, response) => response.end('{}'))
    expect(await outbound(['127.0.0.1']).fetchText(`http://127.0.0.1:${port}/`)).toBe('{}')
    expect(await outbound(['127.0.0.0/8']).fetchText(`http://127.0.0.1:${port}/`)).toBe('{}')
    expect(await messageOf(outbound(['10.0.0.0/8']).fetchText('http://10.0.0.1/'))).toContain(
      'https',
    )
  })

  it('checks every address of a name, and connects to a checked one', async () => {
    const port = await serve((request, response) => response.end(request.headers.host))
    const names: string[] = []
    const rebinding = async (host: string) => {
      names.push(host)
      return names.length === 1 ? ['127.0.0.1'] : ['10.0.0.1']
    }
    const url = `http://idp.example:${port}/`
    expect(await outbound(['127.0.0.1'], rebinding).fetchText(url)).toBe(`idp.example:${port}`)
    expect(names).toEqual(['idp.example'])
    const mixed = outbound([], async () => ['8.8.8.8', '127.0.0.1'])
    expect(await messageOf(mixed.fetchText('https://idp.example/'))).toContain('not a public')
  })

  it('follows no redirect, and reads at most 64 KiB', async () => {
    const port = await serve((request, response) => {
      if (request.url === '/moved') response.writeHead(302, { location: '/' }).end()
      else response.end('x'.repeat(65_537))
    })
    const { fetchText } = outbound(['127.0.0.1'])
    expect(await messageOf(fetchText(`http://127.0.0.1:${port}/moved`))).toContain('answered 302')
    expect(await messageOf(fetchText(`http://127.0.0.1:${port}/`))).toContain(
      'more than 65536 bytes',
    )
  })

  it('stops after its timeout, even while a response trickles', async () => {
    const port = await serve((_, response) => void response.write('{'))
    const { fetchText } = createOutbound({ allow: allowanceOf('127.0.0.1'), timeoutMs: 100 })
    expect(await messageOf(fetchText(`http://127.0.0.1:${port}/`))).toBe('cannot be reached')
  })

  it('fails with one message at each port of a host that is not public', async () => {
    const closed = await serve(() => undefined)
    const silent = await listen((socket) => socket.resume())
    const other = await listen((socket) => socket.end('+PONG\r\n'))
    const broken = await listen((socket) => socket.destroy())
    const cut = await serve((_, response) => {
      response.writeHead(200, { 'content-length': '10' })
      response.write('{', () => response.destroy())
    })
    const { fetchText } = createOutbound({ allow: allowanceOf('127.0.0.1'), timeoutMs: 200 })
    const urls = [1, silent, other, broken, cut].map((port) => `http://127.0.0.1:${port}/`)
    for (const url of [...urls, `https://127.0.0.1:${closed}/`, `https://127.0.0.1:${other}/`])
      expect([url, await messageOf(fetchText(url))]).toEqual([url, 'cannot be reached'])
  })
})
