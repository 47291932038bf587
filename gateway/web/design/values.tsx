import { type ReactNode, useState } from 'react'
import { Dollars, ExactDollars, Micros } from '../ui/amount.tsx'
import { Button } from '../ui/button.tsx'
import { Instant, Period } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Name } from '../ui/name.tsx'
import { Copyable, ShownOnce } from '../ui/shown-once.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { LongTable } from '../ui/table/long-table.tsx'

const signedAt = '2026-03-29T00:59:59.123Z'

export const Values = (): ReactNode => (
  <>
    <Amounts />
    <Table />
    <Long />
    <Secrets />
  </>
)

const Amounts = (): ReactNode => (
  <section className="card" aria-labelledby="values">
    <h2 id="values">Amounts, instants, names</h2>
    <dl className="facts">
      <Fact name="Micros">
        <Micros value="1234567890" />
      </Fact>
      <Fact name="Less than a cent">
        <Micros value="1230" />
      </Fact>
      <Fact name="Negative">
        <Micros value="-4200000" />
      </Fact>
      <Fact name="Dollars">
        <Dollars value="1204.05" />
      </Fact>
      <Fact name="More digits than micros">
        <ExactDollars value="0.123456789012345678" />
      </Fact>
      <Fact name="Instant, UTC on hover">
        <Instant at={signedAt} />
      </Fact>
      <Fact name="Time only">
        <Instant at={signedAt} isTimeOnly />
      </Fact>
      <Fact name="Period">
        <Period from="2026-03-01T00:00:00Z" to="2026-03-31T23:59:59Z" />
      </Fact>
      <Fact name="A text of a tenant">
        <Name>{'a.very.long.name.without.blanks.that.breaks@example.com <b>not bold</b>'}</Name>
      </Fact>
      <Fact name="A state">
        <span className="badge">issued</span> <span className="badge good">paid</span>{' '}
        <span className="badge warn">pending</span> <span className="badge bad">overdue</span>
      </Fact>
    </dl>
  </section>
)

const Fact = ({ name, children }: { name: string; children: ReactNode }): ReactNode => (
  <div>
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
)

const users = ['ada', 'grace', 'a.user.whose.id.is.much.longer.than.those.of.the.others']

function Table(): ReactNode {
  const [count, setCount] = useState(2)
  const query = {
    hasNextPage: count < users.length,
    isFetchingNextPage: false,
    fetchNextPage: () => setCount(users.length),
  }
  return (
    <section className="card" aria-labelledby="table">
      <h2 id="table">Table</h2>
      <TableBox label="Table of samples">
        <table>
          <caption>A narrow screen scrolls it sideways.</caption>
          <thead>
            <tr>
              <th scope="col">User</th>
              <th scope="col">Created</th>
              <th scope="col" className="number">
                Balance
              </th>
            </tr>
          </thead>
          <tbody>
            {users.slice(0, count).map((user, index) => (
              <tr key={user}>
                <th scope="row">
                  <Name>{user}</Name>
                  <small>a remark</small>
                </th>
                <td>
                  <Instant at={signedAt} />
                </td>
                <td className="number">
                  <Micros value={`${index * 1_250_000}`} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableBox>
      <More query={query} label="More users" />
    </section>
  )
}

const rows = Array.from({ length: 1_000 }, (_, index) => `user-${index + 1}`)

const Long = (): ReactNode => (
  <section className="card" aria-labelledby="long">
    <h2 id="long">Long table</h2>
    <LongTable
      label="Long table of samples"
      caption="The document has only the rows near the window."
      columns={[{ name: 'User' }, { name: 'Balance', isNumber: true }]}
      pages={[rows]}
      hasMore={false}
      keyOf={(row) => row}
    >
      {(row) => (
        <>
          <th scope="row">
            <Name>{row}</Name>
          </th>
          <td className="number">
            <Micros value="5000000" />
          </td>
        </>
      )}
    </LongTable>
  </section>
)

function Secrets(): ReactNode {
  const [isShown, setIsShown] = useState(false)
  return (
    <section className="card" aria-labelledby="secrets">
      <h2 id="secrets">Texts to copy, secrets</h2>
      <Copyable text="https://example.com/callback" />
      {isShown ? (
        <ShownOnce label="A secret" text="sample-of-a-secret" onClose={() => setIsShown(false)} />
      ) : (
        <div>
          <Button onClick={() => setIsShown(true)}>Show a secret</Button>
        </div>
      )}
      <pre className="program" tabIndex={0} role="region" aria-label="A program">
        {'curl https://example.com/api/v1/usage \\\n  -H "…"'}
      </pre>
    </section>
  )
}
