import { startProxy } from '../core/support.ts'

export interface RedisProxy {
  /** REDIS_URL for the service. */
  readonly url: string
  /** Closes every connection and refuses new ones. */
  cut(): void
  restore(): void
  stop(): void
}

/** Starts a proxy for the Redis at `url`, which a test can cut. */
export async function startRedisProxy(url: string): Promise<RedisProxy> {
  const { hostname: host, port } = new URL(url)
  const proxy = await startProxy({ host, port: Number(port || 6379) })
  const through = Object.assign(new URL(url), { hostname: '127.0.0.1', port: String(proxy.port) })
  return {
    url: through.href,
    cut: () => proxy.mode('refuse'),
    restore: () => proxy.mode('pass'),
    stop: proxy.stop,
  }
}
