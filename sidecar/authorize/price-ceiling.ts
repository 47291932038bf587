const units: Readonly<Record<string, string>> = {
  live: 'seconds',
  lv2v: '720p-pixel-seconds',
  fixed: 'fixed',
}

/**
 * The `maxPrice` member of an answer for each session type that has a ceiling, with its leading
 * comma. The unit must be the session type's own: another one fails every call (signer-contract.md
 * 2.2).
 */
export function maxPriceMembers(
  ceilings: Readonly<Record<string, string>>,
): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(ceilings).map(([type, price]) => [
      type,
      `,"maxPrice":{"price":${price},"currency":"wei","unit":"${units[type]}"}`,
    ]),
  )
}
