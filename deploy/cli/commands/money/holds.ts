import type {
  HeldCall,
  HeldLease,
  UserHolds,
} from '../../../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import { formatDecimal18 } from '../../../../core/lib/money.ts'
import { type Command, UsageError, parse, withCore } from '../../command.ts'
import { printJson, printLines, printable } from '../../output.ts'

export const holds: Command = {
  summary: 'shows what is held of the money of users',
  help: {
    usages: [
      {
        syntax:
          'tollgate holds [CLIENT_ID [EXTERNAL_USER_ID]] [--limit N] [--cursor TEXT] [--json]',
        text:
          'Lists the users with held money: leases, which sidecars may spend, and pending authorisations, which wait ' +
          'for their tickets. With an app or a user, only those. Of the pending ones it lists the oldest 100 of each user.',
      },
    ],
    examples: ['npx tollgate holds app_0123456789abcdef01234567 ada'],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      limit: { type: 'string' },
      cursor: { type: 'string' },
      json: { type: 'boolean' },
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
    if (values.json) printJson(page)
    else
      printLines([
        ...(page.users.length === 0
          ? ['Nothing is held.']
          : page.users.flatMap(linesOf).map(printable)),
        ...(page.nextCursor ? [`more: --cursor ${page.nextCursor}`] : []),
      ])
    return 0
  },
}

const usd = (attos: string): string => `${formatDecimal18(BigInt(attos))} USD`

function linesOf(user: UserHolds): string[] {
  const hidden = Number(user.pendingCount) - user.pending.length
  return [
    `${user.clientId}  ${user.externalUserId}  balance ${usd(user.balanceUsdAttos)}, ` +
      `lent ${usd(user.lentUsdAttos)}, pending ${usd(user.pendingUsdAttos)} in ${user.pendingCount} calls`,
    ...user.leases.map(leaseLine),
    ...user.pending.map(callLine),
    ...(hidden > 0 ? [`  and ${hidden} calls more`] : []),
  ]
}

const leaseLine = (lease: HeldLease): string =>
  `  lease    ${lease.id}  ${lease.sidecarId}  ${usd(lease.usedUsdAttos)} of ${usd(lease.amountUsdAttos)} used, ` +
  `ends ${lease.endsAt}${lease.recalled ? ', recalled' : ''}`

const callLine = (call: HeldCall): string =>
  `  pending  ${call.sessionId} ${call.sequence}  ${call.type || 'untyped'}  ${call.sidecarId || '-'}  ` +
  `${usd(call.boundUsdAttos)}  since ${call.authorisedAt}${noteOf(call)}`

const noteOf = ({ proven, ticketed }: HeldCall): string =>
  ticketed ? ', waits for a price' : proven ? ', signed' : ''
