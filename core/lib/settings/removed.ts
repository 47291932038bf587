/** Settings of earlier releases, each with its replacement. They have no effect. */
const removed: Readonly<Record<string, string>> = {
  UNPAID_NETWORK_USD:
    "remove it: the account of an app's owner bounds what its apps cost (docs/escrow.md)",
  ACCESS_MIN_USD_MICROS: 'remove it: a call needs a lease that covers its cost (docs/escrow.md)',
}

/** What to do about a setting that an earlier release had; undefined for another name. */
export const removalAdvice = (name: string): string | undefined =>
  Object.hasOwn(removed, name) ? removed[name] : undefined
