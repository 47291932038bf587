import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { plansQuery } from '../api/plans.ts'
import { type UserRef, subscriptionQuery } from '../api/users.ts'
import { Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Empty } from '../ui/states.tsx'
import { ChangePlan } from './change-plan.tsx'
import { useCancelPlan, useResumePlan } from './changes.ts'

interface PlanProps {
  readonly user: UserRef
  readonly canEdit: boolean
}

type Read = Schemas['UserSubscriptionRead']

/** The plan of a user, and what is scheduled for it. */
export function Plan({ user, canEdit }: PlanProps): ReactNode {
  const subscription = useQuery(subscriptionQuery(user))
  return (
    <section className="card" aria-labelledby="plan">
      <h2 id="plan">Plan</h2>
      <Answer query={subscription} rows={3}>
        {(data) => (
          <>
            <Scheduled read={data} />
            <Facts read={data} />
            {canEdit && (
              <>
                <ChangePlan user={user} currentId={data.subscription?.planId ?? null} />
                <Endings user={user} read={data} />
              </>
            )}
          </>
        )}
      </Answer>
    </section>
  )
}

function Facts({ read: { subscription, livePlan, actionRequired } }: { read: Read }): ReactNode {
  if (subscription === null) return <Empty>The user is on no plan.</Empty>
  const { planName, planType, status, currentPeriodStart, currentPeriodEnd } = subscription
  return (
    <>
      {actionRequired === 'choose_new_plan' && (
        <p className="notice">The plan was deleted. Choose another one for the user.</p>
      )}
      <dl className="facts">
        <div>
          <dt>Name</dt>
          <dd>
            <Name>{planName}</Name>
          </dd>
        </div>
        <div>
          <dt>Paid by</dt>
          <dd>{paidBy[planType]}</dd>
        </div>
        <div>
          <dt>Status</dt>
          <dd>
            <span className={status === 'active' ? 'badge good' : 'badge warn'}>
              {statusNames[status]}
            </span>
          </dd>
        </div>
        <div>
          <dt>Running period</dt>
          <dd>
            <Instant at={currentPeriodStart} /> to <Instant at={currentPeriodEnd} />
          </dd>
        </div>
        <div>
          <dt>Included usage</dt>
          <dd>
            {livePlan?.includedUsage ? <Micros value={livePlan.includedUsage.usdMicros} /> : 'none'}
          </dd>
        </div>
      </dl>
    </>
  )
}

const paidBy = { free: 'nobody: it is free', subscription: 'the period', usage: 'usage' }
const statusNames = { active: 'active', past_due: 'past due', canceled: 'ends with its period' }

function Scheduled({ read: { pendingPlan, pendingCancel } }: { read: Read }): ReactNode {
  if (pendingPlan)
    return (
      <p className="notice">
        Changes to <Name>{pendingPlan.name}</Name>
        {pendingPlan.effectiveAt !== null && (
          <>
            {' '}
            at <Instant at={pendingPlan.effectiveAt} />
          </>
        )}
        .
      </p>
    )
  if (!pendingCancel) return null
  return (
    <p className="notice">
      Ends at <Instant at={pendingCancel.effectiveAt} />; then the user is on Starter.
    </p>
  )
}

/** Cancels the plan, or what is scheduled for it. */
function Endings({ user, read }: { user: UserRef; read: Read }): ReactNode {
  const [asked, setAsked] = useState<'cancel' | 'resume' | null>(null)
  const plans = useQuery(plansQuery(user.clientId))
  const { subscription, pendingPlan, pendingCancel } = read
  if (subscription === null) return null
  const isOnStarter = plans.data?.find((plan) => plan.isStarterDefault)?.id === subscription.planId
  const close = (): void => setAsked(null)
  return (
    <div className="row">
      {(pendingPlan ?? pendingCancel) && (
        <Button onClick={() => setAsked('resume')}>Stay on the plan</Button>
      )}
      {!isOnStarter && !pendingCancel && (
        <Button kind="danger" onClick={() => setAsked('cancel')}>
          End the plan
        </Button>
      )}
      {asked === 'cancel' && (
        <Cancellation user={user} end={subscription.currentPeriodEnd} onClose={close} />
      )}
      {asked === 'resume' && <Resumption user={user} onClose={close} />}
    </div>
  )
}

interface CancellationProps {
  readonly user: UserRef
  readonly end: string
  readonly onClose: () => void
}

function Cancellation({ user, end, onClose }: CancellationProps): ReactNode {
  const cancel = useCancelPlan(user)
  return (
    <Confirm
      title="End the plan?"
      effect={
        <>
          The user keeps the plan until <Instant at={end} /> and then moves to Starter. A scheduled
          change is dropped. Until then you can choose “Stay on the plan”.
        </>
      }
      action="End the plan"
      isBusy={cancel.isPending}
      error={cancel.error}
      onConfirm={() => cancel.mutate('next_billing_cycle', { onSuccess: onClose })}
      onClose={onClose}
    />
  )
}

function Resumption({ user, onClose }: { user: UserRef; onClose: () => void }): ReactNode {
  const resume = useResumePlan(user)
  return (
    <Confirm
      title="Stay on the plan?"
      effect="What is scheduled is dropped, and the plan continues after its running period."
      action="Stay on the plan"
      isBusy={resume.isPending}
      error={resume.error}
      onConfirm={() => resume.mutate(undefined, { onSuccess: onClose })}
      onClose={onClose}
    />
  )
}
