/**
 * Runs `work` once for all who ask for the same key at the same time. A failure is shared, then
 * forgotten.
 */
export function createSingleFlight<T>() {
  const running = new Map<string, Promise<T>>()

  return (key: string, work: () => Promise<T>): Promise<T> => {
    const shared = running.get(key)
    if (shared) return shared
    const started = work().finally(() => void running.delete(key))
    running.set(key, started)
    return started
  }
}
