/**
 * Returns the name of the partition with a month's tickets (`YYYY-MM`). Throws for another text,
 * because statements about partitions contain the name.
 */
export function partitionOf(month: string): string {
  if (!/^\d{4}-\d{2}$/.test(month)) throw new Error(`not a month: ${month}`)
  return `tickets_${month.replace('-', '_')}`
}
