/** Hint for a field that `parseDollars` reads. */
export const dollarsHint = 'Type dollars with at most 6 decimals, such as 20.'

/** Returns a parser of whole numbers in a range. It returns null for any other text. */
export const wholeNumber =
  (min: number, max: number) =>
  (text: string): number | null => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN
    return value >= min && value <= max ? value : null
  }
