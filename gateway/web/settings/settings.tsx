import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { appQuery } from '../api/queries.ts'
import { useRights } from '../api/rights.ts'
import { Answer } from '../ui/answer.tsx'
import { Page } from '../ui/page.tsx'
import { Credentials } from './credentials.tsx'
import { Deletion } from './deletion.tsx'
import { Identity } from './identity.tsx'
import { Issuers } from './issuers.tsx'
import { Origins } from './origins.tsx'
import { Redirects } from './redirects.tsx'
import { Routing } from './routing.tsx'
import { SignerSecrets } from './signer-secrets.tsx'
import { TestClock } from './test-clock.tsx'

/** How an app is set up: its name, its credentials, who may log in, and from where. */
export function Settings(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/settings' })
  const { canEdit, canOwn } = useRights(clientId)
  const app = useQuery(appQuery(clientId))
  return (
    <Page title="Settings" about="What an app needs before its first job.">
      <Answer query={app} rows={8}>
        {(data) => (
          <>
            <Identity app={data} canEdit={canEdit} />
            <Credentials app={data} canEdit={canEdit} />
            <Redirects app={data} canEdit={canEdit} />
            <Origins clientId={clientId} canEdit={canEdit} />
            <Issuers clientId={clientId} canEdit={canEdit} />
            <Routing clientId={clientId} />
            {canOwn && <SignerSecrets clientId={clientId} />}
            {data.isTest && <TestClock clientId={clientId} canEdit={canEdit} />}
            {canOwn && <Deletion app={data} />}
          </>
        )}
      </Answer>
    </Page>
  )
}
