import { useSyncExternalStore } from 'react'

/** Whether values show exactly in place, for keyboards and touch screens, which have no hover. */
let isExact = false
const listeners = new Set<() => void>()

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export const useExact = (): boolean => useSyncExternalStore(subscribe, () => isExact)

/** Shows all values exactly, or again rounded and in the reader's time zone. */
export function toggleExact(): void {
  isExact = !isExact
  for (const listener of listeners) listener()
}
