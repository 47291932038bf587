import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { type Plan, plansQuery, usePlanChanges } from '../api/plans.ts'
import { useRights } from '../api/rights.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Page } from '../ui/page.tsx'
import { Empty, Failure } from '../ui/states.tsx'
import { type Draft, check, emptyDraft, toDraft } from './draft.ts'
import { ModelPrices } from './model-prices.tsx'
import { Preview } from './preview.tsx'
import { TermFields } from './term-fields.tsx'
import { TryPlan } from './try-plan.tsx'

/** A new plan. */
export function NewPlan(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/plans/new' })
  return (
    <PlanPage clientId={clientId} title="New plan">
      <PlanForm clientId={clientId} plan={undefined} />
    </PlanPage>
  )
}

/** The terms of a plan. A change of them makes a new version. */
export function EditPlan(): ReactNode {
  const { clientId, planId } = useParams({ from: '/$clientId/plans/$planId' })
  const plans = useQuery(plansQuery(clientId))
  return (
    <PlanPage clientId={clientId} title="Edit a plan">
      <Answer query={plans}>
        {(data) => {
          const plan = data.find(({ id }) => id === planId)
          return plan ? (
            <PlanForm key={plan.id} clientId={clientId} plan={plan} />
          ) : (
            <Empty>This plan does not exist, or it was deleted.</Empty>
          )
        }}
      </Answer>
    </PlanPage>
  )
}

interface PlanPageProps {
  readonly clientId: string
  readonly title: string
  readonly children: ReactNode
}

function PlanPage({ clientId, title, children }: PlanPageProps): ReactNode {
  const { canEdit } = useRights(clientId)
  return (
    <Page
      title={title}
      about={
        <Link to="/$clientId/plans" params={{ clientId }} activeOptions={{ exact: true }}>
          All plans
        </Link>
      }
    >
      {canEdit ? children : <Empty>Your role in this app may not change plans.</Empty>}
    </Page>
  )
}

function PlanForm({ clientId, plan }: { clientId: string; plan: Plan | undefined }): ReactNode {
  const navigate = useNavigate()
  const [draft, setDraft] = useState<Draft>(() => (plan ? toDraft(plan) : emptyDraft))
  const [begunWith] = useState(plan?.version)
  const { create, update } = usePlanChanges(clientId)
  const { terms, problem } = check(draft)
  const change = (changed: Partial<Draft>): void => setDraft({ ...draft, ...changed })
  const error = create.error ?? update.error
  const onSuccess = (): void => void navigate({ to: '/$clientId/plans', params: { clientId } })
  const save = (): void => {
    if (!terms) return
    if (plan) update.mutate({ ...terms, id: plan.id }, { onSuccess })
    else create.mutate(terms, { onSuccess })
  }
  return (
    <>
      <form
        className="card"
        aria-label="Terms"
        onSubmit={(event) => {
          event.preventDefault()
          save()
        }}
      >
        <TermFields draft={draft} onChange={change} />
        <ModelPrices
          clientId={clientId}
          models={draft.models}
          onChange={(models) => change({ models })}
        />
        {plan && plan.version !== begunWith && !update.isPending && (
          <p className="notice">
            Somebody has saved version {plan.version} of this plan meanwhile. Load the page again to
            see it; saving replaces it.
          </p>
        )}
        {problem !== undefined && <p role="status">{problem}</p>}
        {error && <Failure error={error} />}
        <div className="row">
          <Button
            type="submit"
            kind="main"
            disabled={!terms || create.isPending || update.isPending}
          >
            {plan ? `Save as version ${plan.version + 1}` : 'Create the plan'}
          </Button>
        </div>
        {plan && (
          <p className="soft">
            Users keep the terms of their running period. A change of the name alone makes no
            version.
          </p>
        )}
      </form>
      <Preview draft={draft} />
      <TryPlan clientId={clientId} terms={terms} />
    </>
  )
}
