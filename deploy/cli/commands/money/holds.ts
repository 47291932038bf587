import type {
  HeldCall,
  HeldLease,
  UserHolds,
} from '../../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { action, createCommand } from '../../command.ts'
import { dollars } from '../../money.ts'
import { optionalArgument, page } from '../../options.ts'
import { type Column, table } from '../../output.ts'

export const holds = createCommand('holds', {
  summary: 'shows the held money of users',
  examples: ['./tollgate holds app_0123456789abcdef01234567 ada'],
  action: action({
    text:
      'Lists the users with held money: leases, which sidecars may spend, and pending authorisations, which wait ' +
      'for their tickets. An app or a user limits the list. It has the oldest 100 pending authorisations of each ' +
      'user.',
    options: {
      clientId: optionalArgument('CLIENT_ID'),
      externalUserId: optionalArgument('EXTERNAL_USER_ID'),
      ...page,
    },
    read: (core, { clientId = '', externalUserId = '', limit, cursor = '' }) =>
      core.holds.listHolds({ clientId, externalUserId, limit, cursor }),
    lines: ({ users }) => linesOf(users),
  }),
})

const callsOf = (pending: readonly HeldCall[]): number =>
  pending.reduce((sum, { calls }) => sum + calls, 0)

function linesOf(users: readonly UserHolds[]): string[] {
  const withUser = <T>(user: UserHolds, held: readonly T[]) =>
    held.map((one) => ({ ...one, user: user.externalUserId }))
  const leases = users.flatMap((user) => withUser(user, user.leases))
  const calls = users.flatMap((user) => withUser(user, user.pending))
  const hidden = users.reduce(
    (sum, { pendingCount, pending }) => sum + Number(pendingCount) - callsOf(pending),
    0,
  )
  return [
    ...table(users, userColumns, 'Nothing is held.'),
    ...(leases.length === 0 ? [] : ['', ...table(leases, leaseColumns)]),
    ...(calls.length === 0 ? [] : ['', ...table(calls, callColumns)]),
    ...(hidden > 0 ? [`and ${hidden} calls more`] : []),
  ]
}

const userColumns: Column<UserHolds>[] = [
  ['app', 'clientId'],
  ['user', 'externalUserId'],
  ['balance, USD', ({ balanceUsdAttos: attos }) => dollars({ attos })],
  ['lent', ({ lentUsdAttos: attos }) => dollars({ attos })],
  ['pending', ({ pendingUsdAttos: attos }) => dollars({ attos })],
  ['calls', 'pendingCount'],
]

const leaseColumns: Column<HeldLease & { readonly user: string }>[] = [
  'user',
  ['lease', 'id'],
  ['sidecar', 'sidecarId'],
  ['used, USD', ({ usedUsdAttos: attos }) => dollars({ attos })],
  ['of', ({ amountUsdAttos: attos }) => dollars({ attos })],
  ['ends', 'endsAt'],
  ['state', ({ recalled }) => (recalled ? 'recalled' : 'runs')],
]

const callColumns: Column<HeldCall & { readonly user: string }>[] = [
  'user',
  ['session', 'sessionId'],
  ['call', 'sequence'],
  ['type', ({ type }) => type || 'untyped'],
  ['sidecar', ({ sidecarId }) => sidecarId || '-'],
  'calls',
  ['bound, USD', ({ boundUsdAttos: attos }) => dollars({ attos })],
  ['since', 'authorisedAt'],
  ['state', stateOf],
]

function stateOf({ proven, ticketed }: HeldCall): string {
  return ticketed ? 'waits for a price' : proven ? 'signed' : 'allowed'
}
