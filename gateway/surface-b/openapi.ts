import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'

const description = [
  'Identity, metering and billing beside a remote signer.',
  'Money is integer strings: wei, and USD micros (1000000 is one USD).',
  'Every answer carries X-Correlation-Id.',
  'Errors are problem documents (RFC 9457), on token routes OAuth errors (RFC 6749).',
].join(' ')

/** How the OpenAPI 3.0 document of surface B is made from the routes' schemas. */
export function documentOptions(publicUrl: string): FastifyDynamicSwaggerOptions {
  return {
    openapi: {
      openapi: '3.0.3',
      info: { title: 'tollgate platform API', version: '1.0.0', description },
      servers: [{ url: publicUrl }],
      components: {
        securitySchemes: {
          m2mBasic: { type: 'http', scheme: 'basic', description: 'M2M client id and secret' },
          machineToken: { type: 'http', scheme: 'bearer', description: 'A token of the client_credentials grant' },
          session: { type: 'apiKey', in: 'cookie', name: 'tollgate_session', description: 'A dashboard session; changes also need X-CSRF-Token' },
          userToken: { type: 'http', scheme: 'bearer', description: 'A user JWT' },
          sharedSecret: { type: 'http', scheme: 'bearer', description: 'A secret of the deployment' },
          apiKey: { type: 'http', scheme: 'bearer', description: "A user's API key" },
        },
      },
    },
    refResolver: {
      buildLocalReference: (json, ...[, , index]) =>
        typeof json.$id === 'string' ? json.$id : `def-${index}`,
    },
  }
}
