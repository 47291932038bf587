import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { type Check, type CheckRun, checksQuery, useStartCheck } from '../api/checks.ts'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Failure } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

interface CheckText {
  readonly title: string
  readonly about: ReactNode
  readonly action: string
  /** What is missing if it is not configured. */
  readonly missing: string
}

const texts: Readonly<Record<Check['name'], CheckText>> = {
  books: {
    title: 'Books',
    about:
      'Computes ledgers, sums, prices and invoices of all apps again from the tickets, and compares them with what is stored. It only reads.',
    action: 'Verify now',
    missing: '',
  },
  metering: {
    title: 'Metering backend',
    about: 'Compares each user’s tickets of the last seven days and today with those of OpenMeter.',
    action: 'Reconcile now',
    missing: 'No metering backend is configured, so there is nothing to compare with.',
  },
  processor: {
    title: 'Payment processor',
    about: (
      <>
        Compares payments, refunds, disputes and fees with those of the processor, up to an hour
        ago. Open differences are under <Link to="/operate/differences">Differences</Link>.
      </>
    ),
    action: 'Reconcile now',
    missing: 'No payment processor is configured, so there is nothing to compare with.',
  },
}

/** Checks that run in the background of the service, with the last run of each. */
export function Checks(): ReactNode {
  const checks = useQuery(checksQuery)
  return (
    <Page
      title="Checks"
      about="Compare what is stored with what it follows from, and with other systems."
    >
      <Answer query={checks} rows={6}>
        {(all) => all.map((check) => <CheckCard key={check.name} check={check} />)}
      </Answer>
    </Page>
  )
}

function CheckCard({ check: { name, configured, last } }: { check: Check }): ReactNode {
  const { title, about, action, missing } = texts[name]
  const start = useStartCheck()
  const isRunning = last?.state === 'running'
  return (
    <section className="card" aria-labelledby={`check-${name}`}>
      <h2 id={`check-${name}`}>{title}</h2>
      <p className="soft">{about}</p>
      {configured ? (
        <div className="row">
          <Button
            kind="main"
            disabled={isRunning || start.isPending}
            aria-label={`${action}: ${title}`}
            onClick={() => start.mutate(name)}
          >
            {isRunning ? 'Running …' : action}
          </Button>
        </div>
      ) : (
        <p>{missing}</p>
      )}
      {start.error && <Failure error={start.error} />}
      {last === undefined ? (
        configured && <p className="soft">It has not run yet.</p>
      ) : (
        <LastRun run={last} title={title} />
      )}
    </section>
  )
}

const LastRun = ({ run, title }: { run: CheckRun; title: string }): ReactNode => (
  <>
    <p role="status" aria-label={`Result of ${title}`}>
      <Verdict run={run} /> Started <Instant at={run.startedAt} /> by <Name>{run.startedBy}</Name>
      {run.endedAt !== undefined && (
        <>
          , ended <Instant at={run.endedAt} />
        </>
      )}
      .
    </p>
    {run.findings.length > 0 && <Findings run={run} title={title} />}
  </>
)

function Verdict({ run }: { run: CheckRun }): ReactNode {
  const { state, progress, summary = '', failure, findingCount } = run
  if (state === 'running')
    return (
      <>
        <span className="badge">running</span> {progress}
      </>
    )
  if (state === 'interrupted')
    return (
      <>
        <span className="badge warn">interrupted</span> The service stopped meanwhile: start it
        again.
      </>
    )
  if (failure !== undefined)
    return (
      <>
        <span className="badge warn">not completed</span> {failure}.
      </>
    )
  return findingCount === 0 ? (
    <>
      <span className="badge good">everything agrees</span> {summary}
    </>
  ) : (
    <>
      <span className="badge bad">{formatCount(findingCount)} differ</span> {summary}
    </>
  )
}

const Findings = ({ run, title }: { run: CheckRun; title: string }): ReactNode => (
  <>
    <TableBox label={`Differences of ${title}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">App</th>
            <th scope="col">Difference</th>
          </tr>
        </thead>
        <tbody>
          {run.findings.map(({ clientId, text }, index) => (
            <tr key={index}>
              <td>{clientId === undefined ? 'all' : <code>{clientId}</code>}</td>
              <td>
                <Name>{text}</Name>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableBox>
    {run.findingCount > run.findings.length && (
      <p className="soft">
        The first {formatCount(run.findings.length)} of {formatCount(run.findingCount)}. The command
        line lists all: <code>./tollgate verify</code>, <code>./tollgate reconcile</code>.
      </p>
    )}
  </>
)
