import { styleText } from 'node:util'

// Colours are used on a terminal only, unless NO_COLOR or FORCE_COLOR is set (no-color.org,
// force-color.org).

export const heading = (text: string): string =>
  styleText(['bold', 'underline'], text, { stream: process.stdout })

export const command = (text: string): string => styleText('cyan', text, { stream: process.stdout })

/** The label of an error, on standard error. */
export const failure = (text: string): string =>
  styleText(['bold', 'red'], text, { stream: process.stderr })

/** The level of a log line, in five columns. */
export function level(word: string): string {
  const text = word.toUpperCase().padEnd(5)
  const style = word === 'fatal' || word === 'error' ? 'red' : word === 'warn' ? 'yellow' : 'dim'
  return styleText(style, text, { stream: process.stdout })
}
