import { readFileSync, writeFileSync } from 'node:fs'
import { registerHooks } from 'node:module'

// node generate.mjs DOCUMENT FILE: writes the types of an OpenAPI document. The generator prints
// with the API of TypeScript 5, which later versions lack.
registerHooks({
  resolve: (specifier, context, next) =>
    next(specifier === 'typescript' ? 'typescript-5' : specifier, context),
})
const { default: openapiTypescript, astToString } = await import('openapi-typescript')
const [document, file] = process.argv.slice(2)
writeFileSync(
  file,
  astToString(await openapiTypescript(JSON.parse(readFileSync(document, 'utf8')))),
)
