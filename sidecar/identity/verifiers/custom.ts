import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { KeyLookup } from './api-key.ts'
import type { Verifier } from './verifier.ts'

/** What a custom verifier gets from the sidecar. */
export interface CustomContext {
  readonly issuer: string
  readonly lookup: KeyLookup
}

interface CustomModule {
  createVerifier(context: CustomContext): Verifier | Promise<Verifier>
}

/**
 * Loads `custom:<module>`: a package name, or a path from the working directory. The module exports
 * `createVerifier(context)`, which returns a Verifier. Throws an error with one clear line when it does not.
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

/** The verifier, whose verdict says whether it read the headers: then it is true of no other request with that credential. */
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
