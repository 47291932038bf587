import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get, post } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant } from '../schemas.ts'
import { operateRules, operateUrl } from './rules.ts'

const url = `${operateUrl}/signing-keys`

const SigningKeyList = named(
  Type.Object({
    keys: Type.Array(
      Type.Object({
        kid: Type.String(),
        alg: Type.String(),
        status: Type.String({ description: 'next, active or retired.' }),
        createdAt: Instant('When it was made.'),
        retireAt: Type.Optional(Instant('Until then verifiers find a retired key.')),
      }),
    ),
  }),
  'SigningKeyList',
)
const RotatedKeys = named(
  Type.Object({
    activeKid: Type.String({ description: 'The key that signs now.' }),
    nextKid: Type.String({ description: 'The new key that signs after the next rotation.' }),
  }),
  'RotatedKeys',
)

/** The keys that sign tokens (docs/decisions/11.md). */
export function signingKeyRoutes(app: App): void {
  addSchemas(app, [SigningKeyList, RotatedKeys])
  listSigningKeys(app)
  rotateSigningKeys(app)
}

const listSigningKeys = get({
  ...operateRules,
  url,
  operationId: 'listSigningKeys',
  summary: 'List the published signing keys',
  description: 'Lists the next, active and retired keys, without their secrets.',
  response: { 200: ref(SigningKeyList) },
  handler: async ({ core }) => core.tokens.listSigningKeys({}),
})

const rotateSigningKeys = post({
  ...operateRules,
  url: `${url}/rotate`,
  refuses: ['CONFLICT'],
  operationId: 'rotateSigningKeys',
  summary: 'Sign with the next key from now on',
  description:
    'Makes the next key active and publishes a new next key. Earlier tokens stay valid. It is refused while verifiers may not have loaded the next key, unless force is true.',
  body: Type.Object(
    {
      force: Type.Optional(
        Type.Boolean({
          description: 'For a leaked key: some verifiers may refuse tokens at first.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
  response: { 200: ref(RotatedKeys) },
  handler: async ({ body, core }) => core.tokens.rotateSigningKeys(body),
})
