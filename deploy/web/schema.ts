import { writeFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { join } from 'node:path'
import { createEnvReader } from '../../core/lib/env.ts'
import { silentLog } from '../../core/lib/log.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import { readGatewayConfig } from '../../gateway/config.ts'
import { readInternalDocument } from '../../gateway/server.ts'

/**
 * Writes the types of the routes that the dashboard calls, `gateway/web/api/schema.d.ts`, from the
 * gateway's internal document. `npm run typecheck` runs it before. It opens no port.
 */

// The generator prints with the API of TypeScript 5, which later versions lack.
registerHooks({
  resolve: (specifier, context, next) =>
    next(specifier === 'typescript' ? 'typescript-5' : specifier, context),
})
const { default: createTypes, astToString } = await import('openapi-typescript')

const env = createEnvReader({
  PUBLIC_URL: 'http://localhost:8080',
  CORE_TOKEN: 'unused'.padEnd(32, '-'),
})
const config = readGatewayConfig(env)
if (env.problems.length > 0) throw new Error(env.problems.join('; '))
const document = await readInternalDocument(config, {
  log: silentLog(),
  metrics: createMetrics('gateway'),
})
const types = await createTypes(JSON.parse(JSON.stringify(document)))
writeFileSync(join(import.meta.dirname, '../../gateway/web/api/schema.d.ts'), astToString(types))
