import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { routingQuery } from '../api/settings.ts'
import { Answer } from '../ui/answer.tsx'
import { Copyable } from '../ui/shown-once.tsx'

const modes = {
  stream: 'by the stream of the deployment',
  direct: 'pushed by the side of the signer',
}

/** Where the app's jobs are signed. */
export function Routing({ clientId }: { clientId: string }): ReactNode {
  const routing = useQuery(routingQuery(clientId))
  return (
    <section className="card" aria-labelledby="routing">
      <h2 id="routing">Signer</h2>
      <Answer query={routing} rows={3}>
        {({ dmzUrl, jwksUrl, webhookUrl, meteringMode }) => (
          <dl className="facts">
            <Address name="Remote signer" url={dmzUrl} />
            <Address name="Identity webhook" url={webhookUrl} />
            <Address name="Keys of the issuer" url={jwksUrl} />
            <div>
              <dt>Events of tickets arrive</dt>
              <dd>{modes[meteringMode]}</dd>
            </div>
          </dl>
        )}
      </Answer>
    </section>
  )
}

const Address = ({ name, url }: { name: string; url: string }): ReactNode => (
  <div>
    <dt>{name}</dt>
    <dd>{url === '' ? <span className="soft">not set</span> : <Copyable text={url} />}</dd>
  </div>
)
