import { createServer, type ServerResponse } from 'node:http'
import type { TestProject } from 'vitest/node'
import { openCitusCluster } from './citus-cluster.ts'
import { embeddedCluster, openCluster, type Cluster } from './database-cluster.ts'
import { externalParts } from './parts.ts'

/**
 * Serves databases to the workers of this run. A cluster starts at the first request for it, so a
 * run without database tests starts none.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { databaseUrl } = externalParts(process.env)
  const clusters = new Map<string, Promise<Cluster>>()
  const open = (kind: string): Promise<Cluster> => {
    if (kind !== 'external' || databaseUrl === null) return embeddedCluster()
    return databaseUrl === process.env['CITUS_URL']
      ? openCitusCluster(databaseUrl)
      : openCluster(databaseUrl)
  }
  const cluster = (kind: string): Promise<Cluster> => {
    const opened = clusters.get(kind) ?? open(kind)
    clusters.set(kind, opened)
    return opened
  }

  const answer = async (path: string): Promise<object> => {
    const { pathname, searchParams } = new URL(path, 'http://localhost')
    if (pathname === '/clusters') return describe(clusters)
    const { create, drop } = await cluster(searchParams.get('cluster') ?? '')
    if (pathname === '/create') return { url: await create() }
    await drop(searchParams.get('url') ?? '')
    return { url: '' }
  }

  const server = createServer((request, response) => {
    answer(request.url ?? '').then(
      (body) => reply(response, body),
      (error: Error) => reply(response, { error: error.stack ?? error.message }),
    )
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no address')
  project.provide('databases', `http://127.0.0.1:${address.port}`)

  return async () => {
    server.close()
    server.closeAllConnections()
    const opened = await Promise.allSettled(clusters.values())
    await Promise.all(opened.map((one) => (one.status === 'fulfilled' ? one.value.stop() : null)))
  }
}

async function describe(clusters: Map<string, Promise<Cluster>>): Promise<object> {
  const described: Record<string, object> = {}
  for (const [kind, opening] of clusters) {
    const cluster = await opening.catch(() => null)
    if (cluster) described[kind] = { version: cluster.version, host: cluster.host }
  }
  return described
}

function reply(response: ServerResponse, body: object): void {
  response.setHeader('content-type', 'application/json').end(JSON.stringify(body))
}
