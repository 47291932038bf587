/** Returns the value of a setting, which a reload may replace (SIGHUP, docs/configuration.md). */
export type Live<T> = () => T

/** The value of a setting, fixed or live. Read it by `currentValue` where it is used. */
export type Reloadable<T> = T | Live<T>

/** The present value of a setting. Do not keep it: a reload replaces it. */
export const currentValue = <T>(setting: Reloadable<T>): T =>
  isLive(setting) ? setting() : setting

// A setting's value is data, never a function.
const isLive = <T>(setting: Reloadable<T>): setting is Live<T> => typeof setting === 'function'

/** Returns what `derive` makes of the present value, and derives it again only after a reload. */
export function deriveLive<T, Derived>(
  setting: Reloadable<T>,
  derive: (value: T) => Derived,
): Live<Derived> {
  let value = currentValue(setting)
  let derived = derive(value)
  return () => {
    const current = currentValue(setting)
    if (current !== value) {
      derived = derive(current)
      value = current
    }
    return derived
  }
}

/** A live value and the settings it is read from. */
export interface LiveCell {
  readonly names: readonly string[]
  /** The part of the value that only a restart replaces. */
  readonly fixedPart: unknown
  value: unknown
}
