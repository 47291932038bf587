import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { type Plan, planVersionsQuery } from '../api/plans.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { compareVersions } from './compare.ts'

const from = '/$clientId/plans/$planId/versions'

/** Two versions of a plan side by side. */
export function PlanVersions(): ReactNode {
  const { clientId, planId } = useParams({ from })
  const versions = useQuery(planVersionsQuery(clientId, planId))
  const name = versions.data?.[0]?.name
  return (
    <Page
      title={name === undefined ? 'Versions' : `Versions of ${name}`}
      about={
        <Link to="/$clientId/plans" params={{ clientId }} activeOptions={{ exact: true }}>
          All plans
        </Link>
      }
    >
      <Answer query={versions}>{(data) => <Comparison versions={data} />}</Answer>
    </Page>
  )
}

function Comparison({ versions }: { versions: readonly Plan[] }): ReactNode {
  const search = useSearch({ from })
  const navigate = useNavigate({ from })
  const [newest, second] = versions
  if (!newest || !second)
    return (
      <section className="card" aria-label="Versions">
        <Empty>This plan has one version. A change of its terms makes another one.</Empty>
      </section>
    )
  const find = (wanted: number | undefined, otherwise: Plan): Plan =>
    versions.find(({ version }) => version === wanted) ?? otherwise
  const [left, right] = [find(search.left, second), find(search.right, newest)]
  const choice = (side: 'left' | 'right', label: string, shown: Plan): ReactNode => (
    <label>
      {label}
      <select
        value={shown.version}
        onChange={(event) =>
          void navigate({ search: { ...search, [side]: Number(event.target.value) } })
        }
      >
        {versions.map(({ version, updatedAt }) => (
          <option key={version} value={version}>
            version {version}, {updatedAt.slice(0, 10)}
          </option>
        ))}
      </select>
    </label>
  )
  return (
    <section className="card" aria-label="Comparison">
      <div className="row">
        {choice('left', 'Compare', left)}
        {choice('right', 'with', right)}
      </div>
      <Terms left={left} right={right} />
      <p className="soft">Users keep the version that they bought until their period ends.</p>
    </section>
  )
}

function Terms({ left, right }: { left: Plan; right: Plan }): ReactNode {
  const rows = compareVersions(left, right)
  const changed = rows.filter(({ isChanged }) => isChanged).length
  return (
    <>
      <p role="status">
        {changed === 0 ? 'No term differs.' : `${changed} of ${rows.length} terms differ.`}
      </p>
      <TableBox label="Table of terms">
        <table>
          <thead>
            <tr>
              <th scope="col">Term</th>
              {[left, right].map(({ version, updatedAt }, side) => (
                <th key={side} scope="col">
                  Version {version} <Instant at={updatedAt} />
                </th>
              ))}
              <th scope="col">Differs</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ name, before, after, isChanged }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{before}</td>
                <td>{after}</td>
                <td>{isChanged && <span className="badge warn">changed</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableBox>
    </>
  )
}
