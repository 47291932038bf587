import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { KeyLookup } from './api-key.ts'
import type { Verifier } from './verifier.ts'

/** Passed to a custom verifier. */
export interface CustomContext {
  readonly issuer: string
  readonly lookup: KeyLookup
}

interface CustomModule {
  createVerifier(context: CustomContext): Verifier | Promise<Verifier>
}

/**
 * Loads `custom:<module>`: a package name, or a path relative to the working directory. The module
 * must export `createVerifier(context)`, which returns a Verifier; otherwise throws an error with
 * one clear line.
 */
export async function loadCustomVerifier(name: string, context: CustomContext): Promise<Verifier> {
  const address = /^[./]/.test(name) ? pathToFileURL(resolve(name)).href : name
  const loaded: unknown = await import(address).catch((error: unknown) => {
    throw new Error(`IDENTITY_AUTH_MODE: cannot load the module ${name}`, { cause: error })
  })
  if (!isCustomModule(loaded))
    throw new Error(`IDENTITY_AUTH_MODE: ${name} does not export createVerifier`)
  return noticeHeaders(await loaded.createVerifier(context))
}

/**
 * Wraps the verifier to record whether it read the headers. If so, the verdict is not reused for
 * other requests with that credential.
 */
function noticeHeaders(verify: Verifier): Verifier {
  return async ({ credential, headers }) => {
    let byHeaders = false
    const verdict = await verify({
      credential,
      get headers() {
        byHeaders = true
        return headers
      },
    })
    return verdict && { ...verdict, byHeaders }
  }
}

function isCustomModule(value: unknown): value is CustomModule {
  return (
    typeof value === 'object' &&
    value !== null &&
    'createVerifier' in value &&
    typeof value.createVerifier === 'function'
  )
}
