import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { type UserRef, decisionQuery, decisionsMax, decisionsQuery } from '../api/users.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { SearchForm } from '../ui/search/search-form.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

const from = '/$clientId/users/$externalUserId'
const part = { part: 'decisions' } as const

/** What the signer was answered about calls of a user, and why. */
export function Decisions({ user }: { user: UserRef }): ReactNode {
  const { code, decision } = useSearch({ from })
  const decisions = useQuery(decisionsQuery(user, code))
  return (
    <>
      {decision !== undefined && (
        <Explanation clientId={user.clientId} decisionId={decision} code={code} />
      )}
      <section className="card" aria-label="Decisions">
        <Filter code={code ?? ''} />
        <Answer query={decisions}>
          {(found) =>
            found.length > 0 ? (
              <DecisionTable decisions={found} code={code} />
            ) : (
              <Empty>
                {code === undefined
                  ? 'No decision about this user is recorded. Every refusal is, and a sample of permissions, for seven days.'
                  : 'No recorded decision has this code.'}
              </Empty>
            )
          }
        </Answer>
      </section>
    </>
  )
}

const withCode = (code: string | undefined) => (code === undefined ? {} : { code })

function Filter({ code }: { code: string }): ReactNode {
  const navigate = useNavigate({ from })
  return (
    <SearchForm
      label="Code"
      value={code}
      placeholder="insufficient_balance"
      clear="Show all"
      onSearch={(wanted) =>
        void navigate({ search: { ...part, ...(wanted !== '' && { code: wanted }) } })
      }
    />
  )
}

interface DecisionTableProps {
  readonly decisions: Schemas['DecisionList']['decisions']
  readonly code: string | undefined
}

const DecisionTable = ({ decisions, code }: DecisionTableProps): ReactNode => (
  <TableBox label="Table of decisions">
    <table>
      <caption>The newest {decisionsMax} at most.</caption>
      <thead>
        <tr>
          <th scope="col">When</th>
          <th scope="col">Answer</th>
          <th scope="col">Reason</th>
          <th scope="col">Session, call</th>
          <th scope="col">Explained</th>
        </tr>
      </thead>
      <tbody>
        {decisions.map(({ id, decidedAt, status, code: answer, reason, session }) => (
          <tr key={id}>
            <th scope="row">
              <Instant at={decidedAt} />
            </th>
            <td>
              <span className={status === 200 ? 'badge good' : 'badge bad'}>
                {status} {answer}
              </span>
            </td>
            <td>
              <Name>{reason}</Name>
            </td>
            <td>
              {session && (
                <>
                  <code>{session.id}</code>
                  {session.sequence !== undefined && `, ${session.sequence}`}
                </>
              )}
            </td>
            <td>
              <Link
                from={from}
                to="."
                search={{ ...part, ...withCode(code), decision: id }}
                aria-label={`Explain the decision of ${decidedAt}`}
              >
                Explain
              </Link>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

interface ExplanationProps {
  readonly clientId: string
  readonly decisionId: string
  readonly code: string | undefined
}

function Explanation({ clientId, decisionId, code }: ExplanationProps): ReactNode {
  const decision = useQuery(decisionQuery(clientId, decisionId))
  return (
    <section className="card" aria-labelledby="decision">
      <div className="head">
        <h2 id="decision">One decision, explained</h2>
        <Link className="button small" from={from} to="." search={{ ...part, ...withCode(code) }}>
          Close
        </Link>
      </div>
      <Answer query={decision}>
        {(data) => (
          <>
            <ul className="steps">
              {data.explanation.map((sentence) => (
                <li key={sentence}>
                  <Name>{sentence}</Name>
                </li>
              ))}
            </ul>
            <p className="soft">
              {data.status !== 200 && (
                <>
                  <a href={`/errors/${encodeURIComponent(data.code)}`}>
                    About <code>{data.code}</code>
                  </a>
                  .{' '}
                </>
              )}
              Decision <code>{data.id}</code>, rule <code>{data.rule}</code>.
            </p>
          </>
        )}
      </Answer>
    </section>
  )
}
