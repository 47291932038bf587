import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Returns a file of styles in one line, without comments. */
const readStyles = (path: string): string =>
  readFileSync(join(import.meta.dirname, path), 'utf8')
    .replaceAll(/\/\*[\s\S]*?\*\//g, '')
    .replaceAll(/\s+/g, ' ')
    .trim()

/** The colours, type, radii and spacing of all pages, those of the dashboard included. */
export const tokens = readStyles('../../web/ui/style/tokens.css')
const rules = readStyles('page.css')

/** Our colour on a light page, for pictures, which cannot use variables. */
export const ownColor = /--brand: light-dark\((#[0-9a-f]{6}),/.exec(tokens)?.[1] ?? 'currentcolor'

const colorSyntax = /^#[0-9a-f]{6}$/i

/**
 * Returns the style of pages, with the app's colour if its syntax is #rrggbb. Links of an app's page
 * have the colour of text, because an app's colour can be unreadable on the page.
 */
export function renderStyle(appColor?: string): string {
  const accent = appColor !== undefined && colorSyntax.test(appColor) ? appColor : undefined
  const app =
    accent === undefined
      ? ''
      : `:root{--accent:${accent};--on-accent:${isLight(accent) ? '#10141b' : '#ffffff'};--link:var(--text)}`
  return `${tokens}${app}${rules}`
}

// WCAG 2.2 relative luminance. Above 0.3, dark text is more readable than white.
function isLight(color: string): boolean {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(color.slice(at, at + 2), 16) / 255
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.3
}
