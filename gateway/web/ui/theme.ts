import { useSyncExternalStore } from 'react'

/** The theme that the reader chose; `system` follows the device. */
export type Theme = 'system' | 'light' | 'dark'

const key = 'tollgate-theme'
const yearSeconds = 31_536_000
const order: readonly Theme[] = ['system', 'light', 'dark']

/** Returns null if the browser allows no storage. */
function withStorage<T>(work: (storage: Storage) => T): T | null {
  try {
    return work(localStorage)
  } catch {
    return null
  }
}

let chosen = withStorage((storage) => storage.getItem(key))

export function readTheme(): Theme {
  return order.find((theme) => theme === chosen) ?? 'system'
}

export function applyTheme(theme: Theme): void {
  chosen = theme
  withStorage((storage) => {
    if (theme === 'system') storage.removeItem(key)
    else storage.setItem(key, theme)
    return null
  })
  document.cookie = cookieFor(theme)
  document.documentElement.dataset['theme'] = theme
  changes.dispatchEvent(new Event('change'))
}

/** Gives the theme to the pages that the gateway renders, such as the login. */
const cookieFor = (theme: Theme): string =>
  `tollgate_theme=${theme}; path=/; samesite=lax; max-age=${theme === 'system' ? 0 : yearSeconds}${location.protocol === 'https:' ? '; secure' : ''}`

const changes = new EventTarget()
const prefersDark = matchMedia('(prefers-color-scheme: dark)')

/** Whether dark colours show now. What is drawn with colours of its own draws again with it. */
export const useIsDark = (): boolean =>
  useSyncExternalStore(watchChanges, () => {
    const theme = readTheme()
    return theme === 'system' ? prefersDark.matches : theme === 'dark'
  })

function watchChanges(onChange: () => void): () => void {
  const sources = [changes, prefersDark]
  for (const source of sources) source.addEventListener('change', onChange)
  return () => {
    for (const source of sources) source.removeEventListener('change', onChange)
  }
}

/** The theme that follows `theme` when the reader switches. */
export const nextTheme = (theme: Theme): Theme =>
  order[(order.indexOf(theme) + 1) % order.length] ?? 'system'
