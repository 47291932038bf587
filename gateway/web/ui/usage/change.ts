/** Describes how a figure changed. Empty if it was 0, because then there is no percentage. */
export function describeChange(now: bigint, before: bigint): string {
  if (before === 0n) return ''
  const tenths = ((now - before) * 1000n) / before
  if (tenths === 0n) return now === before ? 'as before' : 'about as before'
  const size = tenths < 0n ? -tenths : tenths
  const sign = tenths < 0n ? '−' : '+'
  const fraction = size < 1000n && size % 10n !== 0n ? `.${size % 10n}` : ''
  return `${sign}${(size / 10n).toLocaleString('en-US')}${fraction} %`
}
