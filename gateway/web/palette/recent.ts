import type { Command } from './commands.ts'

/** Ids of the commands that were run last in this browser, the newest first. */

const key = 'tollgate-recent-commands'
const kept = 5

export function readRecent(): string[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(key) ?? '[]')
    return Array.isArray(stored) ? stored.filter((id) => typeof id === 'string') : []
  } catch {
    // The browser allows no storage, or something else wrote there.
    return []
  }
}

/** Users are not kept: their ids would stay in the browser after the logout. */
export function keepRecent({ id, group }: Command): void {
  if (group === 'User') return
  const ids = [id, ...readRecent().filter((other) => other !== id)].slice(0, kept)
  try {
    localStorage.setItem(key, JSON.stringify(ids))
  } catch {
    // Without storage the palette works, and begins anew each time.
  }
}
