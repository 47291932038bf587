import { isIP } from 'node:net'
import { Counter } from 'prom-client'
import type { Log } from '../../core/lib/log.ts'
import type { Metrics } from '../../core/lib/metrics.ts'
import { toNetwork } from '../../core/lib/network/addresses.ts'

/** The parts of a request that contain an address. */
export interface AddressedRequest {
  readonly raw: {
    readonly socket: { readonly remoteAddress?: string | undefined }
    readonly headers: Readonly<Record<string, string | string[] | undefined>>
  }
}

/**
 * Returns the address that a request is counted under. With n trusted proxies it is the n-th from
 * the right in X-Forwarded-For, because each proxy appends its caller's address; the client can
 * forge anything further left.
 */
export function readAddress({ raw }: AddressedRequest, trustedProxyHops: number): string {
  const socket = raw.socket.remoteAddress ?? 'unknown'
  if (trustedProxyHops === 0) return toNetwork(socket)
  const header = [raw.headers['x-forwarded-for'] ?? []].flat().join(',')
  const hops = header
    .split(',')
    .map((part) => part.trim())
    .filter(Boolean)
  const client = hops.at(-trustedProxyHops) ?? hops[0]
  return toNetwork((client === undefined ? undefined : parseAddress(client)) ?? socket)
}

/**
 * Returns the address in an element of X-Forwarded-For, which may have a port, brackets or a zone;
 * undefined if it is not an address.
 */
export function parseAddress(text: string): string | undefined {
  const bare = text.trim().replace(/^"(.*)"$/, '$1')
  const [, v6, v4] = /^(?:\[([^\]]+)\]|([\d.]+))(?::\d{1,5})?$/.exec(bare) ?? []
  const [address = ''] = (v6 ?? v4 ?? bare).split('%')
  return isIP(address) === 0 ? undefined : address
}

export interface ForwardedDeps {
  readonly trustedProxyHops: number
  readonly log: Log
  readonly metrics: Metrics
}

/**
 * Returns a function that checks each request's headers. An X-Forwarded-For that is not read means
 * that a proxy is in front of the gateway and every limit counts all callers as that proxy: counts
 * such requests and warns once.
 */
export function createForwardedCheck({ trustedProxyHops, log, metrics }: ForwardedDeps) {
  const ignored = new Counter({
    name: 'tollgate_gateway_forwarded_ignored_total',
    help: 'Requests with X-Forwarded-For while TRUSTED_PROXY_HOPS is 0',
    registers: [metrics],
  })
  let isWarned = false
  return ({ raw }: AddressedRequest): void => {
    if (trustedProxyHops > 0 || raw.headers['x-forwarded-for'] === undefined) return
    ignored.inc()
    if (!isWarned)
      log.warn(
        { from: raw.socket.remoteAddress },
        'requests have X-Forwarded-For, but TRUSTED_PROXY_HOPS is 0, so all callers behind that proxy share its limits; set TRUSTED_PROXY_HOPS to the number of proxies in front of the gateway',
      )
    isWarned = true
  }
}
