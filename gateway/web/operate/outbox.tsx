import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { type Outbox, outboxQuery, useRetryOutbox } from '../api/operate.ts'
import { formatInteger } from '../ui/long-amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { Failure } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

/** What waits to be sent to other systems, and what they refused. */
export function OutboxCard(): ReactNode {
  const outbox = useQuery(outboxQuery)
  return (
    <section className="card" aria-labelledby="outbox">
      <h2 id="outbox">Outbox</h2>
      <Answer query={outbox}>{(data) => <Content outbox={data} />}</Answer>
    </section>
  )
}

function Content({ outbox }: { outbox: Outbox }): ReactNode {
  const retry = useRetryOutbox()
  return (
    <>
      <p>
        {formatInteger(outbox.waiting)} rows wait
        {outbox.waitingSince !== undefined && (
          <>
            , the oldest since <Instant at={outbox.waitingSince} />
          </>
        )}
        ; {formatInteger(outbox.setAside)} were refused and set aside.
      </p>
      {outbox.rows.length > 0 && <Rows rows={outbox.rows} />}
      {outbox.setAside !== '0' && (
        <div>
          <Button disabled={retry.isPending} onClick={() => retry.mutate()}>
            Send them again
          </Button>
        </div>
      )}
      {retry.data && <p role="status">{retry.data.rows} rows are sent again.</p>}
      {retry.error && <Failure error={retry.error} />}
    </>
  )
}

const Rows = ({ rows }: Pick<Outbox, 'rows'>): ReactNode => (
  <TableBox label="Table of rows that were set aside">
    <table>
      <thead>
        <tr>
          <th scope="col">Kind</th>
          <th scope="col">Items</th>
          <th scope="col">Created</th>
          <th scope="col">Set aside</th>
          <th scope="col">Answer of the other system</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ id, kind, items, createdAt, setAsideAt, error }) => (
          <tr key={id}>
            <th scope="row">{kind}</th>
            <td>{items}</td>
            <td>
              <Instant at={createdAt} />
            </td>
            <td>
              <Instant at={setAsideAt} />
            </td>
            <td>{error}</td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
