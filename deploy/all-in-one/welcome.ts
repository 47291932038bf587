import { relative } from 'node:path'
import { type Quickstart, quickstartPath } from '../local/data-dir.ts'
import type { Service } from './service.ts'

/** Returns the text that `npm start` prints when the service is up. */
export function welcome(service: Omit<Service, 'reloading'>): string {
  const { quickstart: q, parts } = service
  const file = shortest(quickstartPath(service.dataDir))
  const user = `${q.platformUrl}/api/v1/apps/${q.clientId}/users`
  return `
tollgate is up (${(service.startedInMs / 1000).toFixed(1)} s)

  Dashboard            ${siteOf(q)}/app
                       as ${q.ownerEmail}
                       (password: ownerPassword in ${file})
  Platform API, OIDC   ${q.platformUrl}
  Builder API          ${q.builderUrl}${q.edgeUrl === undefined ? '' : `\n  Its edge             ${q.edgeUrl}`}
  Sidecar              ${q.sidecarUrl}/authorize
  Core, gRPC           ${q.coreTarget}
  Metrics, health      ${q.adminUrl}/metrics  /healthz  /readyz

  Database: ${parts['database']}. Cache: ${parts['cache']}. Rates: ${parts['rates']}.
  Events: ${parts['events']}. Reports: ${parts['reports']}.

Try it
  npm run demo         the main flow, in another terminal
  ./tollgate --help    apps, rates, status, settings, a signer to try out

  A user of the demo app (secrets are in ${file}):
  node -p "'user = ${q.m2mClientId}:' + JSON.parse(fs.readFileSync('${file}')).m2mClientSecret" |
    curl -K - -H 'content-type: application/json' -d '{"externalUserId":"ada"}' \\
    ${user}

  API, to try out      ${q.platformUrl}/api/v1/docs
  API document         ${q.platformUrl}/api/v1/openapi.json
  Credentials          ${file}
  Log                  ${shortest(service.logFile)}
  Guide                README.md

Ctrl-C stops it.
`
}

/** The origin of PUBLIC_URL, which sessions and their origin check use. */
const siteOf = ({ issuer }: Quickstart): string => issuer.replace(/\/api\/v1\/oidc$/, '')

function shortest(path: string): string {
  const near = relative(process.cwd(), path)
  return near.startsWith('..') ? path : near
}
