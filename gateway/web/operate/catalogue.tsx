import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { type Catalog, catalogQuery } from '../api/operate.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { LongTable } from '../ui/table/long-table.tsx'

/** Pipelines and models that plans and credit may name. */
export function Catalogue(): ReactNode {
  const catalog = useQuery(catalogQuery)
  return (
    <Page title="Catalogue" about="Pipelines and models that the plans of all apps may name.">
      <Answer query={catalog} rows={6}>
        {({ offers, read }) => (
          <>
            {read && <Reading read={read} />}
            <section className="card" aria-label="Offers">
              {offers.length === 0 ? (
                <Empty>
                  Nothing is in the catalogue yet. An operator adds to it:{' '}
                  <code>./tollgate catalog add PIPELINE:MODEL</code>
                </Empty>
              ) : (
                <Offers offers={offers} />
              )}
            </section>
          </>
        )}
      </Answer>
    </Page>
  )
}

const Reading = ({ read }: { read: NonNullable<Catalog['read']> }): ReactNode => (
  <section className="card" aria-label="Address">
    <dl className="facts">
      <div>
        <dt>Address of the catalogue</dt>
        <dd>
          <code>{read.url}</code>
        </dd>
      </div>
      <div>
        <dt>Read</dt>
        <dd>{read.readAt === undefined ? 'never' : <Instant at={read.readAt} />}</dd>
      </div>
    </dl>
    {read.error !== undefined && (
      <p className="notice">
        The last attempt{' '}
        {read.triedAt !== undefined && (
          <>
            (<Instant at={read.triedAt} />){' '}
          </>
        )}
        failed: {read.error} What was read before stays.
      </p>
    )}
  </section>
)

type Offer = Catalog['offers'][number]

const sources: Readonly<Record<string, string>> = {
  setting: 'PIPELINES',
  url: 'the address',
  operator: 'an operator',
  ticket: 'a ticket',
}

const columns = [{ name: 'Pipeline' }, { name: 'Model' }, { name: 'From' }, { name: 'Added' }]

/** The route answers with the first thousand. */
const Offers = ({ offers }: { offers: readonly Offer[] }): ReactNode => (
  <>
    <LongTable
      label="Table of offers"
      columns={columns}
      pages={[offers]}
      hasMore={false}
      keyOf={keyOf}
    >
      {({ pipeline, modelId, source, addedAt }) => (
        <>
          <th scope="row">
            <Name>{pipeline}</Name>
          </th>
          <td>{modelId === '*' ? 'every model' : <Name>{modelId}</Name>}</td>
          <td>{sources[source] ?? source}</td>
          <td>{addedAt === undefined ? 'at the start' : <Instant at={addedAt} />}</td>
        </>
      )}
    </LongTable>
    {offers.length >= 1_000 && (
      <p className="soft">
        Further ones: <code>./tollgate catalog list</code>
      </p>
    )}
  </>
)

const keyOf = ({ source, pipeline, modelId }: Offer): string => `${source} ${pipeline} ${modelId}`
