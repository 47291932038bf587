import { readFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { Client } from 'pg'
import { parse, stringify } from 'yaml'
import { type Stops, secret } from '../../support/deployment/parts.ts'
import { freePorts } from '../../support/deployment/processes.ts'
import { type Program, startProgram } from '../../support/run/programs.ts'
import { debianPostgres } from '../../support/run/replica.ts'
import { makeFolder, programOf, untilTrue, writeOwned } from './folder.ts'

/** A Patroni cluster of three with etcd, and HAProxy before it, as deploy/ describes them. */
export interface PostgresCluster {
  /** The address of HAProxy, which leads to the primary. */
  readonly url: string
  /**
   * Kills the primary's Patroni and PostgreSQL with SIGKILL. Returns its name, and a function that
   * starts it again and waits until it is a streaming replica.
   */
  killPrimary(): Promise<{ readonly name: string; readonly restart: () => Promise<void> }>
}

const root = join(import.meta.dirname, '../../..')
const readDeploy = (path: string): Promise<string> => readFile(join(root, 'deploy', path), 'utf8')
const upMs = 90_000
const database = 'tollgate'

interface Member {
  readonly name: string
  readonly sqlPort: number
  readonly restPort: number
  readonly folder: string
  readonly file: string
}

interface Passwords {
  readonly superuser: string
  readonly replication: string
  readonly rewind: string
}

export async function startPostgresCluster(stops: Stops, folder: string): Promise<PostgresCluster> {
  await makeFolder(folder)
  const etcds = await startEtcds(stops, folder)
  const passwords = { superuser: secret(), replication: secret(), rewind: secret() }
  const members = await writeMembers({ folder, etcds, passwords })
  const running = new Map<string, Program>()
  const start = async (member: Member): Promise<void> => {
    const { file, restPort: port, folder: cwd } = member
    running.set(member.name, await startProgram(programOf('patroni'), [file], { port, cwd }))
  }
  stops.push(async () => {
    for (const program of running.values()) await program.stop('SIGKILL')
    for (const member of members) await killPostgres(member)
  })
  for (const member of members) await start(member)
  const primary = () => findPrimary(members)
  await untilTrue('the cluster has a primary and two replicas', {
    withinMs: upMs,
    isSo: async () => {
      const roles = await Promise.all(members.map(roleOf))
      return roles.filter((role) => role === 'replica').length === 2 && (await primary()) !== null
    },
  })
  const port = await startProxy(stops, { folder, members })
  const url = await createDatabase(port, passwords.superuser)

  async function killPrimary() {
    const victim = await primary()
    if (victim === null) throw new Error('the cluster has no primary')
    await running.get(victim.name)?.stop('SIGKILL')
    await killPostgres(victim)
    const restart = async (): Promise<void> => {
      await start(victim)
      const isSo = async (): Promise<boolean> => (await roleOf(victim)) === 'replica'
      await untilTrue(`${victim.name} is a replica`, { withinMs: upMs, isSo })
    }
    return { name: victim.name, restart }
  }

  return { url, killPrimary }
}

/** Returns the client addresses of three members. */
async function startEtcds(stops: Stops, folder: string): Promise<string[]> {
  const ports = await freePorts(6)
  const at = (port: number | undefined): string => `http://127.0.0.1:${port}`
  const members = [0, 1, 2].map((i) => ({
    name: `etcd-${i + 1}`,
    client: ports[2 * i] ?? 0,
    peer: at(ports[2 * i + 1]),
  }))
  const cluster = members.map(({ name, peer }) => `${name}=${peer}`).join(',')
  const starts = members.map(async ({ name, client, peer }) => {
    const args = Object.entries({
      name,
      'data-dir': join(folder, name),
      'listen-client-urls': at(client),
      'advertise-client-urls': at(client),
      'listen-peer-urls': peer,
      'initial-advertise-peer-urls': peer,
      'initial-cluster': cluster,
      'log-level': 'error',
    }).map(([key, value]) => `--${key}=${value}`)
    const program = await startProgram(programOf('etcd'), args, { port: client, cwd: folder })
    stops.push(() => program.stop('SIGKILL'))
  })
  await Promise.all(starts)
  return members.map(({ client }) => `127.0.0.1:${client}`)
}

/** Writes deploy/patroni/patroni.yml for each member, with its addresses, folder and passwords. */
async function writeMembers(cluster: {
  readonly folder: string
  readonly etcds: readonly string[]
  readonly passwords: Passwords
}): Promise<Member[]> {
  const shipped = await readDeploy('patroni/patroni.yml')
  const ports = await freePorts(6)
  const members: Member[] = []
  for (const i of [0, 1, 2]) {
    const name = `pg-${i + 1}`
    const folder = join(cluster.folder, name)
    await makeFolder(folder)
    const [sqlPort = 0, restPort = 0] = ports.slice(2 * i)
    const member = { name, sqlPort, restPort, folder, file: join(folder, 'patroni.yml') }
    await writeOwned(member.file, toLocal(shipped, { ...cluster, member }))
    members.push(member)
  }
  return members
}

function toLocal(
  shipped: string,
  { member, etcds, passwords }: { member: Member; etcds: readonly string[]; passwords: Passwords },
): string {
  const settings = parse(shipped)
  const { name, sqlPort, restPort, folder } = member
  const [sql, rest] = [`127.0.0.1:${sqlPort}`, `127.0.0.1:${restPort}`]
  const { authentication, ...postgresql } = settings.postgresql
  for (const [role, password] of Object.entries(passwords)) authentication[role].password = password
  return stringify({
    ...settings,
    name,
    restapi: { listen: rest, connect_address: rest },
    etcd3: { hosts: etcds },
    postgresql: {
      ...postgresql,
      authentication,
      listen: sql,
      connect_address: sql,
      data_dir: join(folder, 'data'),
      bin_dir: debianPostgres,
      pgpass: join(folder, 'pgpass'),
      parameters: { ...postgresql.parameters, shared_buffers: '64MB' },
    },
  })
}

/** The role that Patroni reports; null if it does not answer. */
async function roleOf({ restPort }: Member): Promise<'primary' | 'replica' | null> {
  const asks = async (role: string): Promise<boolean> => {
    const signal = AbortSignal.timeout(2_000)
    const answer = await fetch(`http://127.0.0.1:${restPort}/${role}`, { signal }).catch(() => null)
    await answer?.body?.cancel()
    return answer?.status === 200
  }
  if (await asks('primary')) return 'primary'
  return (await asks('replica')) ? 'replica' : null
}

async function findPrimary(members: readonly Member[]): Promise<Member | null> {
  for (const member of members) if ((await roleOf(member)) === 'primary') return member
  return null
}

/** Kills the server and all of its backends, as the loss of the machine would. */
async function killPostgres({ folder }: Member): Promise<void> {
  const text = await readFile(join(folder, 'data', 'postmaster.pid'), 'utf8').catch(() => '')
  const server = Number(text.split('\n')[0])
  if (!(server > 1)) return
  for (const pid of [server, ...(await childrenOf(server))]) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It has ended already.
    }
  }
}

async function childrenOf(parent: number): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const found: number[] = []
  for (const pid of pids) {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
    // After the name in parentheses: state, parent.
    if (stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1] === String(parent))
      found.push(Number(pid))
  }
  return found
}

/** Starts HAProxy with deploy/haproxy/postgres.cfg. Returns the port of the primary. */
async function startProxy(
  stops: Stops,
  { folder, members }: { folder: string; members: readonly Member[] },
): Promise<number> {
  const [port = 0, replicaPort = 0] = await freePorts(2)
  const shipped = await readDeploy('haproxy/postgres.cfg')
  const text = shipped
    .replace('maxconn 2000', 'maxconn 400')
    .replace('bind :5000', `bind 127.0.0.1:${port}`)
    .replace('bind :5001', `bind 127.0.0.1:${replicaPort}`)
    .replace(/pg-(\d):5432 check port 8008/g, (_, index: string) => {
      const member = members[Number(index) - 1]
      return `127.0.0.1:${member?.sqlPort} check port ${member?.restPort}`
    })
  const file = join(folder, 'haproxy.cfg')
  await writeOwned(file, text)
  const program = await startProgram(programOf('haproxy'), ['-db', '-f', file], {
    port,
    cwd: folder,
  })
  stops.push(() => program.stop())
  return port
}

/** Creates a role without special rights, and its database. Returns its address. */
async function createDatabase(port: number, superuser: string): Promise<string> {
  const password = secret()
  const address = `127.0.0.1:${port}`
  const connectionString = `postgres://postgres:${superuser}@${address}/postgres`
  const isSo = async (): Promise<boolean> => {
    const client = new Client({ connectionString })
    client.on('error', () => {})
    try {
      await client.connect()
      await client.query(`create role ${database} login password '${password}'`)
      await client.query(`create database ${database} owner ${database}`)
      return true
    } finally {
      await client.end().catch(() => {})
    }
  }
  await untilTrue('HAProxy leads to the primary', { withinMs: upMs, isSo })
  return `postgres://${database}:${password}@${address}/${database}`
}
