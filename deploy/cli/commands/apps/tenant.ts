import type { Tenant } from '../../../../proto/gen/ts-proto/tollgate/identity/v1/tenants.ts'
import { action, createCommand } from '../../command.ts'
import { argument, integer, page, toggle } from '../../options.ts'
import { table } from '../../output.ts'

const tableOf = (tenants: readonly (Tenant | undefined)[]): string[] =>
  table(
    tenants.filter((tenant) => tenant !== undefined),
    [['tenant', 'clientId'], ['app', 'appName'], 'status', 'secrets', ['since', 'createdAt']],
    'No tenants yet; make one with: ./tollgate tenant create APP',
  )

const secretLine = ({ secret }: { readonly secret: string }): string =>
  `secret (shown once): ${secret}`

const clientId = argument('APP')

export const tenant = createCommand('tenant', {
  summary: 'lets apps create users at the builder API with an admin secret',
  examples: [
    './tollgate tenant create app_0123456789abcdef01234567',
    './tollgate tenant rotate app_0123456789abcdef01234567 --overlap-seconds 3600',
  ],
  actions: {
    create: action({
      text: "Makes an app a tenant of the builder API and prints its admin secret once. The tenant's name is the app's client id (app_…).",
      options: { clientId },
      change: (core, request) => core.tenants.createTenant(request),
      lines: (answer) => [...tableOf([answer.tenant]), secretLine(answer)],
    }),
    list: action({
      text: 'Lists tenants, the oldest first.',
      options: page,
      read: (core, request) => core.tenants.listTenants(request),
      lines: ({ tenants }) => tableOf(tenants),
    }),
    rotate: action({
      text: 'Makes a new secret. The old secrets stay valid for N seconds, a day by default; 0 ends them at once, together with the API keys that were issued with them unless --keep-keys is set.',
      options: {
        clientId,
        overlapSeconds: integer('N', { from: 0, fallback: 86_400 }),
        keepKeys: toggle(),
      },
      change: (core, request) => core.tenants.rotateTenantSecret(request),
      lines: (answer) => [
        secretLine(answer),
        `the old secrets end at ${answer.oldSecretsExpireAt}; ${answer.revokedKeys} keys ended with them`,
      ],
    }),
    disable: action({
      text: 'Refuses the secrets of a tenant until it is enabled. Users and their keys keep working.',
      options: { clientId },
      change: (core, request) => core.tenants.disableTenant(request),
      lines: (answer) => tableOf([answer.tenant]),
    }),
    enable: action({
      text: 'Enables a disabled tenant.',
      options: { clientId },
      change: (core, request) => core.tenants.enableTenant(request),
      lines: (answer) => tableOf([answer.tenant]),
    }),
  },
})
