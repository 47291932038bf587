import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { findProgram, startProgram } from './programs.ts'

/** The path of Debian's HAProxy; undefined if it is not installed. */
export const haproxy = findProgram('haproxy')

export interface Balanced {
  /** Ports of this HAProxy, by the names of its frontends. */
  readonly ports: Readonly<Record<'platform' | 'builder' | 'sidecar' | 'core', number>>
  /** Each gateway's, core's and sidecar's ports, in the order of the servers in the file. */
  readonly gateways: readonly Readonly<Record<'platform' | 'builder' | 'admin', number>>[]
  readonly cores: readonly Readonly<Record<'grpc' | 'admin', number>>[]
  readonly sidecars: readonly Readonly<Record<'http' | 'admin', number>>[]
}

/**
 * Starts a HAProxy with deploy/haproxy/haproxy.cfg, in which only addresses and the most connections
 * are replaced.
 */
export async function startBalancer(balanced: Balanced): Promise<{ stop(): Promise<void> }> {
  const path = join(import.meta.dirname, '../../../deploy/haproxy/haproxy.cfg')
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-haproxy-'))
  await chmod(folder, 0o755)
  const file = join(folder, 'haproxy.cfg')
  await writeFile(file, toLocal(await readFile(path, 'utf8'), balanced), { mode: 0o644 })
  const program = await startProgram(haproxy ?? 'haproxy', ['-db', '-f', file], {
    port: balanced.ports.platform,
    cwd: folder,
  })
  return {
    stop: async () => {
      await program.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function toLocal(text: string, { ports, gateways, cores, sidecars }: Balanced): string {
  const local = (port: number | undefined): string => `127.0.0.1:${port}`
  const numberOf = (index: string): number => Number(index) - 1
  return text
    .replace(/^( +)maxconn 4000$/m, '$1maxconn 400')
    .replace(/^( +bind) :8080$/m, `$1 ${local(ports.platform)}`)
    .replace(/^( +bind) :8081$/m, `$1 ${local(ports.builder)}`)
    .replace(/^( +bind) :8090$/m, `$1 ${local(ports.sidecar)}`)
    .replace(/^( +bind) :50051/m, `$1 ${local(ports.core)}`)
    .replace(/ gateway-(\d):(8080|8081) check port 9465/g, (_, index: string, port: string) => {
      const gateway = gateways[numberOf(index)]
      const at = port === '8080' ? gateway?.platform : gateway?.builder
      return ` ${local(at)} check port ${gateway?.admin}`
    })
    .replace(/ sidecar-(\d):8090 check port 9466/g, (_, index: string) => {
      const sidecar = sidecars[numberOf(index)]
      return ` ${local(sidecar?.http)} check port ${sidecar?.admin}`
    })
    .replace(/ core-(\d):50051 (.*) port 9464/g, (_, index: string, options: string) => {
      const core = cores[numberOf(index)]
      return ` ${local(core?.grpc)} ${options} port ${core?.admin}`
    })
}
