import type { ReactNode } from 'react'
import { isObject, readText } from '../../../core/lib/json.ts'
import { type Check, type Verdict, judge } from '../../../proto/receipts/check.ts'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { TableBox } from '../ui/table-box.tsx'

/** The result of all checks, each check, and the claims of the receipt. */
export const Result = ({ checks, claims }: Verdict): ReactNode => {
  const verdict = judge(checks)
  return (
    <>
      {verdict === 'wrong' && (
        <p className="problem" role="status">
          This receipt is wrong. Do not trust it. Failed:{' '}
          {namesOf(checks, ({ isRight }) => isRight === false)}.
        </p>
      )}
      {verdict === 'open' && (
        <p className="notice" role="status">
          This receipt could not be checked, so it is neither right nor wrong. Open:{' '}
          {namesOf(checks, ({ isNeeded }) => isNeeded === true)}.
        </p>
      )}
      {verdict === 'right' && (
        <p role="status">
          <strong>This receipt is right.</strong>
          {checks.some(({ isRight }) => isRight === null) &&
            ' Some checks need data that it lacks.'}
        </p>
      )}
      <CheckTable checks={checks} />
      {verdict === 'right' && claims && <Ticket claims={claims} />}
    </>
  )
}

const namesOf = (checks: readonly Check[], isMeant: (check: Check) => boolean): string =>
  checks
    .filter(isMeant)
    .map(({ name }) => name)
    .join(', ')

const CheckTable = ({ checks }: { checks: readonly Check[] }): ReactNode => (
  <TableBox label="Table of checks">
    <table>
      <thead>
        <tr>
          <th scope="col">Check</th>
          <th scope="col">Result</th>
          <th scope="col">Details</th>
        </tr>
      </thead>
      <tbody>
        {checks.map(({ name, isRight, text }) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>
              <Badge isRight={isRight} />
            </td>
            <td className="details">{text}</td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

function Badge({ isRight }: { isRight: boolean | null }): ReactNode {
  if (isRight === null) return <span className="badge warn">not checked</span>
  return isRight ? (
    <span className="badge good">right</span>
  ) : (
    <span className="badge bad">wrong</span>
  )
}

const facts = [
  ['Event id', 'eventId'],
  ['Pipeline', 'pipeline'],
  ['Model', 'modelId'],
  ['Fee in wei', 'feeWei'],
  ['USD for one ETH', 'usdPerEth'],
  ['Network cost in USD', 'networkCostUsd'],
  ['Price for the user in USD', 'retailCostUsd'],
  ['Platform fee in USD', 'platformFeeUsd'],
] as const

/** What a right receipt states about its ticket. */
function Ticket({ claims }: { claims: Readonly<Record<string, unknown>> }): ReactNode {
  const ticket = isObject(claims['ticket']) ? claims['ticket'] : {}
  const user = claims['externalUserId']
  return (
    <dl className="facts" aria-label="The ticket">
      <div>
        <dt>User</dt>
        <dd>{typeof user === 'string' ? <Name>{user}</Name> : 'deleted'}</dd>
      </div>
      <div>
        <dt>Signed</dt>
        <dd>
          <Instant at={readText(ticket['signedAt'])} />
        </dd>
      </div>
      {facts.map(([name, member]) => (
        <div key={member}>
          <dt>{name}</dt>
          <dd>{readText(ticket[member])}</dd>
        </div>
      ))}
    </dl>
  )
}
