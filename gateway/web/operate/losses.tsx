import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { type LossFilter, type LossReport, lossesQuery } from '../api/operate.ts'
import { Micros, Wei } from '../ui/amount.tsx'
import { formatInteger } from '../ui/long-amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

/** What was signed and never reported, over all apps. */
export function Losses(): ReactNode {
  const filter = useSearch({ from: '/operate/losses' })
  const losses = useQuery(lossesQuery(filter))
  return (
    <Page
      title="Losses"
      about="Tickets that the signer signed and never reported. Nobody pays them."
    >
      <section className="card" aria-label="Period">
        <Filter key={JSON.stringify(filter)} filter={filter} />
      </section>
      <Answer query={losses} rows={6}>
        {(report) => (
          <>
            <Figures report={report} />
            <Apps apps={report.apps} />
          </>
        )}
      </Answer>
    </Page>
  )
}

function Filter({ filter }: { filter: LossFilter }): ReactNode {
  const navigate = useNavigate({ from: '/operate/losses' })
  const [from, setFrom] = useState(filter.from ?? '')
  const [to, setTo] = useState(filter.to ?? '')
  const show = (first: string, last: string): void =>
    void navigate({
      search: { ...(first !== '' && { from: first }), ...(last !== '' && { to: last }) },
    })
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault()
        show(from, to)
      }}
    >
      <label>
        From
        <input
          type="date"
          max={to || undefined}
          value={from}
          onChange={(event) => setFrom(event.target.value)}
        />
      </label>
      <label>
        To
        <input
          type="date"
          min={from || undefined}
          value={to}
          onChange={(event) => setTo(event.target.value)}
        />
      </label>
      <Button type="submit">Show</Button>
      {(filter.from ?? filter.to) !== undefined && (
        <Button onClick={() => show('', '')}>Last 30 days</Button>
      )}
      <span className="soft">Days in UTC</span>
    </form>
  )
}

const Figures = ({ report }: { report: LossReport }): ReactNode => (
  <dl className="stats">
    <div>
      <dt>Lost tickets</dt>
      <dd>
        {formatInteger(report.totals.lostCount)}
        <small>
          about <Micros value={report.totals.estimatedUsdMicros} />, in{' '}
          {formatInteger(report.totals.sessionCount)} sessions
        </small>
      </dd>
    </div>
    {report.calls && (
      <div>
        <dt>Allowed calls written off</dt>
        <dd>
          {formatInteger(report.calls.lostCount)}
          <small>
            at most <Micros value={report.calls.lostUsdMicros} />
          </small>
        </dd>
      </div>
    )}
    {report.calls && (
      <div>
        <dt>Charged as an estimate</dt>
        <dd>
          {formatInteger(report.calls.chargedCount)}
          <small>
            <Micros value={report.calls.chargedUsdMicros} />
          </small>
        </dd>
      </div>
    )}
    <div>
      <dt>Events without a known user</dt>
      <dd>
        {formatInteger(report.unattributedEvents)}
        <small>
          <Wei value={report.unattributedFeeWei} /> in quarantine
        </small>
      </dd>
    </div>
  </dl>
)

const Apps = ({ apps }: Pick<LossReport, 'apps'>): ReactNode => (
  <section className="card" aria-labelledby="by-app">
    <h2 id="by-app">By app</h2>
    {apps.length === 0 ? (
      <Empty>Nothing was lost.</Empty>
    ) : (
      <TableBox label="Table of apps with losses">
        <table>
          <thead>
            <tr>
              <th scope="col">App</th>
              {['Lost', 'About', 'Forked', 'Late', 'Allowed calls'].map((name) => (
                <th scope="col" className="number" key={name}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {apps.map(({ clientId, totals, calls }) => (
              <tr key={clientId ?? ''}>
                <th scope="row">
                  {clientId === undefined ? 'deleted apps' : <code>{clientId}</code>}
                </th>
                <td className="number">{formatInteger(totals.lostCount)}</td>
                <td className="number">
                  <Micros value={totals.estimatedUsdMicros} />
                </td>
                <td className="number">{formatInteger(totals.forkedCount)}</td>
                <td className="number">{formatInteger(totals.lateCount)}</td>
                <td className="number">{formatInteger(calls?.authorisedCount ?? '0')}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableBox>
    )}
  </section>
)
