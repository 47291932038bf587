/**
 * Events arrive late. For 15 minutes after a credit ends, its remaining amount stays reserved for
 * tickets signed before its end, so that a late ticket and a balance read may come in either order.
 * A ticket that arrives even later finds the amount only if nothing else has locked the account
 * since: `charge` expires credits after it burns, every other change before. Such a ticket may
 * become overage although the credit would have covered it in time.
 */
export const lateMs = 15 * 60_000
