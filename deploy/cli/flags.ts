import type { Help } from './help.ts'

/** Options by the request field that they fill, if the names differ. */
const flags: Readonly<Record<string, string>> = {
  accountId: '--id',
  amountUsdMicros: '--usd-micros',
  appsMax: '--apps',
  clientId: '--app',
  eventId: '--ticket',
  externalUserId: '--user',
  featureKey: '--feature',
  'Idempotency-Key': '--key',
  maxPrices: '--max-price',
  maxUsdMicros: '--usd-micros',
  observedAt: '--at',
  planId: '--plan',
  ownerEmail: '--owner',
}

/** Replaces the field at the start of core's message by this command's option. */
export function withFlag(message: string, help: Help): string {
  const [field = ''] = /^[A-Za-z-]+(?= (?:must|is|may|needs)\b)/.exec(message) ?? []
  const flag = Object.hasOwn(flags, field) ? flags[field] : `--${kebab(field)}`
  const isKnown = field !== '' && help.usages.some(({ syntax }) => hasFlag(syntax, flag ?? ''))
  return isKnown ? `${flag}${message.slice(field.length)}` : message
}

const hasFlag = (syntax: string, flag: string): boolean => syntax.split(/[^a-z-]+/i).includes(flag)

const kebab = (field: string): string =>
  field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
