/** The test cards of the simulated processor, by their names on the pay page. */
export const testCards = {
  works: { brand: 'visa', last4: '4242' },
  declined: { brand: 'visa', last4: '0002' },
  /** Must be confirmed on the page, so it cannot be charged without the user. */
  confirmation: { brand: 'visa', last4: '3184' },
  /** Valid until the end of the month. */
  expires_soon: { brand: 'mastercard', last4: '4444' },
  /** Pays on the page; later charges are declined. */
  declined_later: { brand: 'visa', last4: '0341' },
} as const

export type TestCard = keyof typeof testCards

const isTestCard = (text: string): text is TestCard => Object.hasOwn(testCards, text)

export const parseTestCard = (text: string): TestCard | null => (isTestCard(text) ? text : null)

const validYears = 4

/** Returns the month until whose end a new card is valid. */
export function computeExpiry(card: TestCard, at: Date): { month: number; year: number } {
  const years = card === 'expires_soon' ? 0 : validYears
  return { month: at.getUTCMonth() + 1, year: at.getUTCFullYear() + years }
}

export const isExpired = (
  { expiresMonth, expiresYear }: { readonly expiresMonth: number; readonly expiresYear: number },
  at: Date,
): boolean => at.getTime() >= Date.UTC(expiresYear, expiresMonth)

/** Result of a charge without the user. */
export function chargeCard(
  card: { readonly card: TestCard; readonly expiresMonth: number; readonly expiresYear: number },
  at: Date,
): { readonly state: 'succeeded' | 'action_required' | 'failed'; readonly failure: string | null } {
  if (isExpired(card, at)) return { state: 'failed', failure: 'expired_card' }
  if (card.card === 'confirmation')
    return { state: 'action_required', failure: 'authentication_required' }
  if (card.card === 'declined' || card.card === 'declined_later')
    return { state: 'failed', failure: 'card_declined' }
  return { state: 'succeeded', failure: null }
}
