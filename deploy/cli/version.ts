import { readFileSync } from 'node:fs'

/** Returns the version of this release. */
export function version(): string {
  const manifest = new URL('../../package.json', import.meta.url)
  return String(JSON.parse(readFileSync(manifest, 'utf8')).version)
}
