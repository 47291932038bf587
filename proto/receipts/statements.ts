/** The `typ` of each signed statement about tickets (docs/receipts.md). */
export const statementTypes = {
  receipt: 'tollgate-receipt+jwt',
  root: 'tollgate-receipt-root+jwt',
  'provisional root': 'tollgate-receipt-provisional-root+jwt',
} as const
