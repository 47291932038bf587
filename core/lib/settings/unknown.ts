import { nearest } from '../names/did-you-mean.ts'
import type { Env } from '../env.ts'
import { removalAdvice } from './removed.ts'
import { secretNames, settingNames } from './names.ts'

/** Prefixes that only our settings have. An unknown variable with such a prefix has no effect. */
const families = ['TOLLGATE_', 'CORE_TOKEN_', 'CORE_TLS_']

const known: ReadonlySet<string> = new Set([
  ...settingNames,
  ...secretNames.map((name) => `${name}_FILE`),
  // OpenSSL's, which resembles TLS_CERT_FILE.
  'SSL_CERT_FILE',
  // Used by our tests and our continuous integration.
  'TOLLGATE_SERVICES',
  'TOLLGATE_DATABASES',
  'TOLLGATE_TEST_LOGS',
  'TOLLGATE_CI_BOUNDED',
  'TOLLGATE_CI_CACHE',
])

/** One line for each variable that resembles a setting but is not one. Never contains the value. */
export function unknownSettings(env: Env): string[] {
  return Object.keys(env)
    .filter((name) => !known.has(name))
    .toSorted()
    .flatMap((name) => {
      const advice = removalAdvice(name.toUpperCase())
      if (advice !== undefined)
        return [`${name} (environment) is a setting of an earlier release; ${advice}`]
      const setting = nearest(name.toUpperCase(), settingNames)
      if (setting !== undefined)
        return [`${name} (environment) is not a setting; did you mean ${setting}?`]
      return families.some((family) => name.startsWith(family))
        ? [`${name} (environment) is not a setting; ./tollgate config lists them`]
        : []
    })
}
