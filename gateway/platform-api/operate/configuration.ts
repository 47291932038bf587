import { Type } from 'typebox'
import { type OwnSettings, redactSettings } from '../../../core/lib/settings/redacted.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const Configuration = named(
  Type.Object({
    processes: Type.Array(
      Type.Object({
        process: Type.String({ description: 'core, gateway or all-in-one.' }),
        settings: Type.Array(
          Type.Object({
            name: Type.String(),
            meaning: Type.String(),
            value: Type.Optional(
              Type.String({ description: 'Absent for secrets, and without a value.' }),
            ),
            defaultValue: Type.Optional(Type.String({ description: 'Absent without a default.' })),
            source: Type.String({
              description: 'environment, default, unset, npm start, or the path of a file.',
            }),
            secret: Type.Boolean(),
            reloads: Type.Boolean({ description: 'Whether SIGHUP reloads it.' }),
          }),
        ),
      }),
    ),
  }),
  'Configuration',
)

/** The settings of the processes that answer: this gateway, and its core. */
export function configurationRoutes(
  app: App,
  { ownSettings: own }: { readonly ownSettings?: OwnSettings | undefined },
): void {
  addSchemas(app, [Configuration])
  get({
    ...operateRules,
    url: `${operateUrl}/configuration`,
    operationId: 'getConfiguration',
    summary: 'Settings of core and gateway',
    description:
      'Lists every setting of the gateway and the core that answer, with value, default and source. The values of secrets are never in it.',
    response: { 200: ref(Configuration) },
    handler: async ({ core }) => {
      const ofCore = await core.settings.listSettings({})
      // All in one, both are the same process.
      const isOther = own !== undefined && own.process !== ofCore.process
      const others = isOther ? [{ process: own.process, settings: redactSettings(own.list()) }] : []
      return { processes: [ofCore, ...others] }
    },
  })(app)
}
