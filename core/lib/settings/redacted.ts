import type { Setting } from '../env.ts'

/** The settings of this process, for platform admins. */
export interface OwnSettings {
  /** core, gateway or all-in-one. */
  readonly process: string
  /** Returns the present settings, in the order of their declarations. */
  readonly list: () => readonly Setting[]
}

/** A setting without the value of a secret. */
export interface RedactedSetting {
  readonly name: string
  readonly meaning: string
  /** Undefined for secrets, and without a value. */
  readonly value: string | undefined
  readonly defaultValue: string | undefined
  readonly source: string
  readonly secret: boolean
  readonly reloads: boolean
}

/** Returns each setting once, by name. A URL is shown without user, password and the values of its query. */
export function redactSettings(settings: readonly Setting[]): RedactedSetting[] {
  const byName = new Map(settings.map((setting) => [setting.name, redact(setting)]))
  return [...byName.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1))
}

const redact = ({ value, fallback, ...setting }: Setting): RedactedSetting => ({
  ...setting,
  value: setting.secret || value === '' ? undefined : withoutCredentials(value),
  defaultValue: setting.secret || fallback === '' ? undefined : withoutCredentials(fallback),
})

// A setting that is no secret may still be a list of URLs that somebody wrote a password or a key into.
const withoutCredentials = (value: string): string =>
  value.replace(/\/\/[^/\s,]*@/g, '//…@').replace(/([?&][^=&\s,]+=)[^&\s,]*/g, '$1…')
