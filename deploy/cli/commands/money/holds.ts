import type {
  HeldCall,
  HeldLease,
  UserHolds,
} from '../../../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import { type Command, UsageError, parse, withCore } from '../../command.ts'
import { dollars } from '../../money.ts'
import { report, table } from '../../output.ts'

export const holds: Command = {
  summary: 'shows the held money of users',
  help: {
    usages: [
      {
        syntax:
          'tollgate holds [CLIENT_ID [EXTERNAL_USER_ID]] [--limit N] [--cursor TEXT] [--json]',
        text:
          'Lists the users with held money: leases, which sidecars may spend, and pending authorisations, which wait ' +
          'for their tickets. An app or a user limits the list. It has the oldest 100 pending authorisations of each ' +
          'user.',
      },
    ],
    examples: ['./tollgate holds app_0123456789abcdef01234567 ada'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      limit: { type: 'string' },
      cursor: { type: 'string' },
    })
    const [clientId = '', externalUserId = '', ...more] = positionals
    if (more.length > 0) throw new UsageError('holds takes an app and one of its users at most')
    const limit = Number(values.limit ?? '100')
    if (!Number.isInteger(limit) || limit < 1 || limit > 1_000)
      throw new UsageError('--limit must be from 1 to 1000')
    const cursor = values.cursor ?? ''
    const page = await withCore(values, (core) =>
      core.listHolds({ clientId, externalUserId, limit, cursor }),
    )
    report(values, page, () => [
      ...linesOf(page.users),
      ...(page.nextCursor ? [`more: --cursor ${page.nextCursor}`] : []),
    ])
    return 0
  },
}

const userColumns = ['app', 'user', 'balance, USD', 'lent', 'pending', 'calls']
const leaseColumns = ['user', 'lease', 'sidecar', 'used, USD', 'of', 'ends', 'state']
const callColumns = [
  'user',
  'session',
  'call',
  'type',
  'sidecar',
  'calls',
  'bound, USD',
  'since',
  'state',
]

const callsOf = (pending: readonly HeldCall[]): number =>
  pending.reduce((sum, { calls }) => sum + calls, 0)

function linesOf(users: readonly UserHolds[]): string[] {
  const leases = users.flatMap((user) => user.leases.map((lease) => leaseCells(user, lease)))
  const calls = users.flatMap((user) => user.pending.map((call) => callCells(user, call)))
  const hidden = users.reduce(
    (sum, { pendingCount, pending }) => sum + Number(pendingCount) - callsOf(pending),
    0,
  )
  return [
    ...table(userColumns, users.map(userCells), 'Nothing is held.'),
    ...(leases.length === 0 ? [] : ['', ...table(leaseColumns, leases)]),
    ...(calls.length === 0 ? [] : ['', ...table(callColumns, calls)]),
    ...(hidden > 0 ? [`and ${hidden} calls more`] : []),
  ]
}

const userCells = (user: UserHolds): string[] => [
  user.clientId,
  user.externalUserId,
  dollars({ attos: user.balanceUsdAttos }),
  dollars({ attos: user.lentUsdAttos }),
  dollars({ attos: user.pendingUsdAttos }),
  String(user.pendingCount),
]

const leaseCells = ({ externalUserId }: UserHolds, lease: HeldLease): string[] => [
  externalUserId,
  lease.id,
  lease.sidecarId,
  dollars({ attos: lease.usedUsdAttos }),
  dollars({ attos: lease.amountUsdAttos }),
  lease.endsAt,
  lease.recalled ? 'recalled' : 'runs',
]

const callCells = ({ externalUserId }: UserHolds, call: HeldCall): string[] => [
  externalUserId,
  call.sessionId,
  String(call.sequence),
  call.type || 'untyped',
  call.sidecarId || '-',
  String(call.calls),
  dollars({ attos: call.boundUsdAttos }),
  call.authorisedAt,
  stateOf(call),
]

const stateOf = ({ proven, ticketed }: HeldCall): string =>
  ticketed ? 'waits for a price' : proven ? 'signed' : 'allowed'
