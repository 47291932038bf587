import { useQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { type Plan, plansQuery, usePlanChanges } from '../api/plans.ts'
import { useRights } from '../api/rights.ts'
import { Dollars, Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { percentOfRate } from '../ui/rates.ts'
import { Failure } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { Starter } from './starter.tsx'

/** What an app sells to its users. */
export function Plans(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/plans' })
  const { canEdit } = useRights(clientId)
  const plans = useQuery(plansQuery(clientId))
  return (
    <Page
      title="Plans"
      about="What users pay, and what they get for it."
      actions={
        canEdit && (
          <Link className="button main-action" to="/$clientId/plans/new" params={{ clientId }}>
            New plan
          </Link>
        )
      }
    >
      <Answer query={plans}>
        {(data) => (
          <>
            <PlanTable clientId={clientId} plans={data} canEdit={canEdit} />
            {canEdit && <Starter clientId={clientId} plans={data} />}
          </>
        )}
      </Answer>
    </Page>
  )
}

interface PlanTableProps {
  readonly clientId: string
  readonly plans: readonly Plan[]
  readonly canEdit: boolean
}

function PlanTable({ clientId, plans, canEdit }: PlanTableProps): ReactNode {
  const [deleted, setDeleted] = useState<Plan>()
  const { remove, sync } = usePlanChanges(clientId)
  const close = (): void => {
    setDeleted(undefined)
    remove.reset()
  }
  return (
    <section className="card" aria-label="Plans">
      {sync.error && <Failure error={sync.error} />}
      <TableBox label="Table of plans">
        <table>
          <thead>
            <tr>
              <th scope="col">Plan</th>
              <th scope="col">Price</th>
              <th scope="col">Included</th>
              <th scope="col">Usage costs</th>
              <th scope="col">State</th>
              {canEdit && <th scope="col">Changes</th>}
            </tr>
          </thead>
          <tbody>
            {plans.map((plan) => (
              <tr key={plan.id}>
                <th scope="row">
                  <PlanName clientId={clientId} plan={plan} />
                </th>
                <td>
                  <Dollars value={plan.priceAmount} /> <small>{plan.billingCycle}</small>
                </td>
                <td>
                  {plan.includedUsdMicros === null ? (
                    <span className="soft">none</span>
                  ) : (
                    <Micros value={plan.includedUsdMicros} />
                  )}
                </td>
                <td>
                  <Prices plan={plan} />
                </td>
                <td>
                  <PlanState plan={plan} />
                </td>
                {canEdit && (
                  <td>
                    {isOwn(plan) && (
                      <div className="row">
                        <Link
                          className="button small"
                          to="/$clientId/plans/$planId"
                          params={{ clientId, planId: plan.id }}
                          aria-label={`Edit ${plan.name}`}
                        >
                          Edit
                        </Link>
                        <Button
                          isSmall
                          kind="danger"
                          aria-label={`Delete ${plan.name}`}
                          onClick={() => setDeleted(plan)}
                        >
                          Delete
                        </Button>
                        {plan.syncError !== null && (
                          <Button
                            isSmall
                            disabled={sync.isPending}
                            aria-label={`Sync ${plan.name} again`}
                            onClick={() => sync.mutate(plan.id)}
                          >
                            Sync again
                          </Button>
                        )}
                      </div>
                    )}
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </TableBox>
      {deleted && (
        <Confirm
          title={`Delete the plan ${deleted.name}?`}
          effect="Nobody can choose it any more. Users on it keep it until their running period ends."
          action="Delete"
          typed={deleted.name}
          isBusy={remove.isPending}
          error={remove.error}
          onConfirm={() => remove.mutate(deleted.id, { onSuccess: close })}
          onClose={close}
        />
      )}
    </section>
  )
}

const PlanName = ({ clientId, plan }: { clientId: string; plan: Plan }): ReactNode => (
  <>
    {plan.name}
    <small>
      {plan.type},{' '}
      {plan.version > 1 ? (
        <Link
          to="/$clientId/plans/$planId/versions"
          params={{ clientId, planId: plan.id }}
          aria-label={`version ${plan.version} of ${plan.name}`}
        >
          version {plan.version}
        </Link>
      ) : (
        'version 1'
      )}
    </small>
  </>
)

/** Starter and Network Price belong to the deployment. */
const isOwn = ({ isStarterDefault, isNetworkDefault }: Plan): boolean =>
  !isStarterDefault && !isNetworkDefault

const Prices = ({ plan }: { plan: Plan }): ReactNode => (
  <>
    {plan.overageRateUsd === null
      ? 'network price'
      : `${percentOfRate(plan.overageRateUsd)} % of the network price`}
    {plan.capabilities.length > 0 && (
      <details>
        <summary>{plan.capabilities.length} models with prices</summary>
        <ul className="list">
          {plan.capabilities.map(({ id, pipeline, modelId, retailRateUsd }) => (
            <li key={id}>
              {pipeline}, {modelId}:{' '}
              {retailRateUsd === null
                ? 'as its pipeline, else the plan'
                : `${percentOfRate(retailRateUsd)} %`}
            </li>
          ))}
        </ul>
      </details>
    )}
  </>
)

const PlanState = ({ plan }: { plan: Plan }): ReactNode => (
  <>
    <span className={plan.status === 'active' ? 'badge good' : 'badge'}>{plan.status}</span>
    {plan.syncError === null ? (
      plan.lastSyncedAt !== null && (
        <small>
          synced <Instant at={plan.lastSyncedAt} />
        </small>
      )
    ) : (
      <small className="bad">
        Not synced: {plan.syncError}
        {plan.lastSyncedAt !== null && (
          <>
            {' '}
            The last sync that succeeded: <Instant at={plan.lastSyncedAt} />.
          </>
        )}
      </small>
    )}
  </>
)
